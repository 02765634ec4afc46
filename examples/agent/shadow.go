package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/internal/bootid"
	"github.com/nodewright/nodewright/kubeapi"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/shadow"
	"github.com/nodewright/nodewright/record"
)

// shadowFlags are the flags of "agent record kubelet".
type shadowFlags struct{ kubelet, kubeconfig, node, runtime string }

// kubeletTimeout limits the time of a request for a kubelet's pods.
const kubeletTimeout = 10 * time.Second

func newRecordKubelet(std stdio) *cobra.Command {
	var f shadowFlags
	cmd := &cobra.Command{
		Use: "kubelet DIR", Short: "Record what the kubelet of this machine does with its pods, and what the agent would decide, until Ctrl-C",
		Long: `Record what the kubelet of this machine does with its pods, and what the agent would decide at the same moments, until
Ctrl-C. The command reads the pods and the state of the container runtime, and changes nothing. The record is below DIR.
"agent why" explains it, and "agent replay" shows where the agent would have acted differently. The record contains no
results of probes, pulls, volumes, admissions and evictions, which only the kubelet knows.`,
		Example: "  agent record kubelet /var/lib/shadow --kubeconfig /etc/kubernetes/kubelet.conf\n  agent record kubelet /var/lib/shadow --kubelet http://127.0.0.1:10255/pods\n" +
			"  agent why web --since 1h --root-dir /var/lib/shadow\n  agent record export web web.record --root-dir /var/lib/shadow\n  agent replay web.record",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("record kubelet: want a directory")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), std, args[0]) },
	}
	cmd.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "read the pods from the API server in this kubeconfig `file`; the permissions of the kubelet's own file are enough")
	cmd.Flags().StringVar(&f.kubelet, "kubelet", "", "read the pods from the kubelet at this `URL`; this also works for a kubelet without an API server")
	cmd.Flags().StringVar(&f.node, "hostname-override", "", "the `name` of the node; default: the host name")
	cmd.Flags().StringVar(&f.runtime, "container-runtime-endpoint", "unix:///run/containerd/containerd.sock", "the `socket` of the kubelet's container runtime")
	return cmd
}

func (f *shadowFlags) run(ctx context.Context, std stdio, dir string) error {
	if (f.kubelet == "") == (f.kubeconfig == "") {
		return fmt.Errorf("--kubelet=%q --kubeconfig=%q: want one of them", f.kubelet, f.kubeconfig)
	}
	log := zap.New(zapcore.NewCore(nodeagent.TerminalEncoder(), zapcore.AddSync(std.err), zap.WarnLevel))
	if f.node == "" {
		name, err := os.Hostname()
		if err != nil {
			return err
		}
		f.node = name
	}
	rt, err := cri.New(cri.Config{Endpoint: f.runtime, Log: log})
	if err != nil {
		return fmt.Errorf("--container-runtime-endpoint=%q: %w", f.runtime, err)
	}
	defer func() { _ = rt.Close(context.WithoutCancel(ctx)) }()
	g, ctx := errgroup.WithContext(ctx)
	pods, err := f.pods(ctx, g, log)
	if err != nil {
		return err
	}
	boot, err := bootid.Read(os.DirFS("/"))
	if err != nil {
		return err
	}
	r, err := record.New(record.Config{Dir: filepath.Join(dir, "record"), Node: f.node, Version: versionString(), Boot: boot, Log: log})
	if err != nil {
		return err
	}
	g.Go(func() error { return r.Run(ctx) })
	g.Go(func() error {
		return shadow.Run(ctx, shadow.Config{Runtime: rt, Pods: pods, Record: r.Record, Log: log})
	})
	fmt.Fprintf(std.err, "recording the pods of node %s below %s until Ctrl-C\n", f.node, dir)
	return g.Wait()
}

// pods returns a function that returns the node's pods. Goroutines that it needs run in g.
func (f *shadowFlags) pods(ctx context.Context, g *errgroup.Group, log *zap.Logger) (func(context.Context) ([]*v1.Pod, error), error) {
	if f.kubelet != "" {
		return shadow.KubeletPods(&http.Client{Timeout: kubeletTimeout}, f.kubelet), nil
	}
	user, _, err := kubeapi.LoadCredentials(kubeapi.CredentialFiles{Kubeconfig: f.kubeconfig}, time.Now())
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%q: %w", f.kubeconfig, err)
	}
	client, err := kubeapi.New(kubeapi.Config{REST: user})
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%q: %w", f.kubeconfig, err)
	}
	p, err := shadow.NewAPIPods(client, f.node, log)
	if err != nil {
		return nil, err
	}
	g.Go(func() error { return p.Run(ctx) })
	return p.Pods, nil
}
