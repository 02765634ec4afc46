package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	api "github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/localapi"
)

// onSocket is the value of --local-api that serves the API on the agent's own socket only.
const onSocket = "socket"

// serveLocalAPI adds the Kubernetes API of the node to the options if --local-api is set.
func serveLocalAPI(o *nodeagent.Options, f *runFlags) {
	switch f.localAPI {
	case "":
	case onSocket:
		localapi.Attach(o, localapi.Config{})
	default:
		localapi.Attach(o, localapi.Config{Address: f.localAPI})
	}
}

// newKubeconfig returns the command that creates a kubeconfig with a new client certificate. The
// command uses the certificate authority in the root directory, which only root can read. It works
// without a running agent.
func newKubeconfig(std stdio) *cobra.Command {
	var (
		rootDir, user, group, server string
		valid                        time.Duration
	)
	cmd := &cobra.Command{
		Use: "kubeconfig", Short: "Create a kubeconfig with a new client certificate for the Kubernetes API of this node",
		Example: "  agent kubeconfig > ~/.kube/config\n  agent kubeconfig --user ann --group view --valid 24h > ann.kubeconfig",
		Args:    noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			groups := map[string]string{"view": api.GroupView, "edit": api.GroupEdit, "admin": api.GroupAdmin}
			if groups[group] == "" {
				return fmt.Errorf("--group=%q: want view, edit or admin", group)
			}
			if valid <= 0 {
				return fmt.Errorf("--valid=%v: want a positive duration", valid)
			}
			text, err := localapi.Kubeconfig(rootDirOr(rootDir), server, user, []string{groups[group]}, valid)
			if err != nil {
				return err
			}
			_, err = std.out.Write(text)
			return err
		},
	}
	fs := cmd.Flags()
	rootDirFlag(fs, &rootDir)
	fs.StringVar(&user, "user", "admin", "the user `name` in the certificate")
	fs.StringVar(&group, "group", "admin", "the `role` of the user: view, edit or admin")
	fs.StringVar(&server, "server", "", "the `URL` of the API; default: the URL at which the agent served it last")
	fs.DurationVar(&valid, "valid", 365*24*time.Hour, "the `duration` for which the certificate is valid")
	completeFlag(cmd, "group", oneOf("view", "edit", "admin"))
	return cmd
}
