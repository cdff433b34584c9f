module felix.dev/dev/programs/pause

go 1.24
