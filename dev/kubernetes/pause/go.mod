module felix.dev/dev/kubernetes/pause

go 1.24
