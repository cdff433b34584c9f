//! Schemas of bounded maps and names that several resources share.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Up to 32 labels; a value is at most 63 bytes, as Kubernetes has it.
pub(crate) fn labels(_: &mut SchemaGenerator) -> Schema {
    map_of_strings(32, 63)
}

/// Up to 32 annotations of at most 4096 bytes each.
pub(crate) fn annotations(_: &mut SchemaGenerator) -> Schema {
    map_of_strings(32, 4096)
}

/// An RFC 3339 time stamp.
pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "maxLength": 40 })
}

fn map_of_strings(max_entries: u32, max_value: u32) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": max_entries,
        "additionalProperties": { "type": "string", "maxLength": max_value },
    })
}
