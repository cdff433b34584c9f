// Command kubernetes is a whole small Kubernetes in one program. It acts as the component whose name it is called by,
// so that the libraries all components share are compiled, linked and kept on the disk once.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// command wraps a cobra command so that only the component asked for is built.
func command(build func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(build())) }
}

func main() {
	components := map[string]func(){
		"etcd":                    func() { etcdmain.Main(os.Args) },
		"coredns":                 coremain.Run,
		"kube-apiserver":          command(apiserver.NewAPIServerCommand),
		"kube-controller-manager": command(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
		"kube-proxy":              command(proxy.NewProxyCommand),
		"kubectl":                 command(kubectl.NewDefaultKubectlCommand),
	}
	name := filepath.Base(os.Args[0])
	run, known := components[name]
	if !known {
		fmt.Fprintf(os.Stderr, "called as %q, which is no component of Kubernetes\n", name)
		os.Exit(2)
	}
	run()
}
