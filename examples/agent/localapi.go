package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"time"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/kubeletconfig"
	api "github.com/nodewright/nodewright/localapi"
	"github.com/nodewright/nodewright/nodeagent"
	"github.com/nodewright/nodewright/nodeagent/localapi"
)

// onSocket is the value of --local-api that serves the API on the agent's own socket only.
const onSocket = "socket"

// serveLocalAPI adds the Kubernetes API of the node, and its page, to the options, if a flag
// asks for it.
func serveLocalAPI(o *nodeagent.Options, f *runFlags) error {
	c := localapi.Config{Address: f.localAPI}
	switch f.localAPI {
	case "":
		return nil
	case onSocket:
		c.Address = ""
	}
	if f.localUI {
		page, err := local.NewPage(local.PageConfig{Agent: local.NewClient(o.Socket), Log: o.Log})
		if err != nil {
			return err
		}
		c.Beside = map[string]http.Handler{"/ui/": http.StripPrefix("/ui", page)}
		o.Services = append(o.Services, func(*nodeagent.Node) (string, func(context.Context) error, error) { return "page", page.Run, nil })
	}
	localapi.Attach(o, c)
	return nil
}

// kubeconfig creates a client certificate with the certificate authority in the root directory,
// which only root can read. The agent need not run.
func kubeconfig(_ context.Context, std stdio, args []string) error {
	fs := flag.NewFlagSet("agent kubeconfig", flag.ContinueOnError)
	rootDir := fs.String("root-dir", kubeletconfig.DefaultRootDir, "the agent's root `directory`")
	user := fs.String("user", "admin", "the user `name` in the certificate")
	group := fs.String("group", "admin", "the `role` of the user: view, edit or admin")
	server := fs.String("server", "", "the `URL` of the API; by default the last one that the agent served")
	valid := fs.Duration("valid", 365*24*time.Hour, "the `duration` for which the certificate is valid")
	extra, err := parseNames(fs, std, args)
	if err != nil {
		return err
	}
	if len(extra) > 0 {
		return fmt.Errorf("kubeconfig takes no argument, got %q", extra[0])
	}
	groups := map[string]string{"view": api.GroupView, "edit": api.GroupEdit, "admin": api.GroupAdmin}
	if groups[*group] == "" {
		return fmt.Errorf("--group=%q: want view, edit or admin", *group)
	}
	if *valid <= 0 {
		return fmt.Errorf("--valid=%v: want a positive duration", *valid)
	}
	text, err := localapi.Kubeconfig(*rootDir, *server, *user, []string{groups[*group]}, *valid)
	if err != nil {
		return err
	}
	_, err = std.out.Write(text)
	return err
}
