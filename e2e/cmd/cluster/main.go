// Command cluster contains the programs of a control plane: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and kubectl. The name under which it is called selects
// the program. As one program, they have to be linked only once.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cluster PROGRAM [FLAGS]; etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl")
		os.Exit(2)
	}
	name := os.Args[1]
	os.Args = os.Args[1:]
	programs := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kubectl":                 kubectl.NewDefaultKubectlCommand,
	}
	switch program, ok := programs[name]; {
	case name == "etcd":
		etcdmain.Main(os.Args)
	case ok:
		os.Exit(cli.Run(program()))
	default:
		fmt.Fprintf(os.Stderr, "cluster: %q: no such program\n", name)
		os.Exit(2)
	}
}
