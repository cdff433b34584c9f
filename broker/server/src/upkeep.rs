//! What a running broker looks after: UDP buffers that fell short, and files that change.

use std::{fmt::Display, sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time};
use tokio_util::sync::CancellationToken;

use crate::{
    admin::AdminToken, broker::Broker, metrics::WatchedFile, tls::RELOAD_INTERVAL, udp::BufferHandle,
};

/// How often buffers are asked for while they are short.
const BUFFER_INTERVAL: Duration = Duration::from_secs(60);

/// Asks for the UDP buffers again while the kernel gives less than was asked for.
pub(crate) async fn buffers(broker: Arc<Broker>, handle: BufferHandle, stop: CancellationToken) {
    let mut known = broker.buffers();
    if known.is_short() {
        tracing::warn!(
            receive_asked = known.receive.asked,
            receive_granted = known.receive.granted,
            send_asked = known.send.asked,
            send_granted = known.send.granted,
            "UDP buffers are smaller than asked for; raise net.core.rmem_max and net.core.wmem_max on the node"
        );
    }
    while known.is_short() {
        tokio::select! {
            () = time::sleep(BUFFER_INTERVAL) => {}
            () = stop.cancelled() => return,
        }
        match handle.ask() {
            Ok(buffers) if buffers != known => {
                tracing::info!(?buffers, "the kernel grants other UDP buffers than before");
                known = buffers;
                broker.buffers.store(Arc::new(buffers));
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "cannot ask for UDP buffers"),
        }
    }
}

/// Takes changed certificates and tokens into use.
pub(crate) async fn files(broker: Arc<Broker>, token: Arc<AdminToken>, stop: CancellationToken) {
    let (mut certificate_failure, mut token_failure) = (Failure::default(), Failure::default());
    loop {
        tokio::select! {
            () = time::sleep(RELOAD_INTERVAL) => {}
            () = stop.cancelled() => return,
        }
        let (certificate, admin_token) = (Arc::clone(&broker.certificate), Arc::clone(&token));
        let looked = spawn_blocking(move || (certificate.reload(), admin_token.reload())).await;
        let Ok((certificate, admin_token)) = looked else {
            return;
        };
        certificate_failure.note(&broker, WatchedFile::Certificate, certificate);
        token_failure.note(&broker, WatchedFile::AdminToken, admin_token);
    }
}

/// The latest failure to read a file, said once for as long as it lasts.
#[derive(Default)]
struct Failure(Option<String>);

impl Failure {
    fn note<E: Display>(&mut self, broker: &Broker, file: WatchedFile, looked: Result<bool, E>) {
        match looked {
            Ok(changed) => {
                if changed {
                    tracing::info!(?file, "a changed file is in use");
                }
                self.0 = None;
            }
            Err(error) => {
                let message = error.to_string();
                if self.0.as_deref() != Some(&message) {
                    broker.metrics.observe_reload_failure(file);
                    tracing::warn!(
                        ?file,
                        message,
                        "a changed file cannot be used, the one before stays in use"
                    );
                    self.0 = Some(message);
                }
            }
        }
    }
}
