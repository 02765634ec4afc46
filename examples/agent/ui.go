package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
)

// uiTokenEnv is the environment variable with the token that a browser needs. If it is not
// set, the command creates a random token.
const uiTokenEnv = "NODEWRIGHT_UI_TOKEN"

func newUI(std stdio) *cobra.Command {
	var (
		c      clientFlags
		listen string
	)
	cmd := &cobra.Command{
		Use: "ui", Short: "Serve a page about the node at a secret address", Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  agent ui\n  agent ui --listen 127.0.0.1:8080",
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.serveUI(cmd.Context(), std, listen) },
	}
	c.register(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "`address` and port of the page, which is served without encryption")
	return cmd
}

// serveUI serves a page about the node until ctx ends, and prints the page's URL.
func (c *clientFlags) serveUI(ctx context.Context, std stdio, listen string) error {
	log, err := zap.NewProduction()
	if err != nil {
		return err
	}
	page, err := local.NewPage(local.PageConfig{
		Agent: c.client(), Log: log,
		Past: func(q local.PastQuery) (local.Past, error) { return agent.Past(c.recordDir(), q) },
	})
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	token := os.Getenv(uiTokenEnv)
	if token == "" {
		token = rand.Text()
	}
	if len(token) < 16 {
		return errors.Join(fmt.Errorf("%s has %d bytes; want at least 16", uiTokenEnv, len(token)), l.Close())
	}
	fmt.Fprintf(std.out, "http://%s/?token=%s\n", l.Addr(), token)
	return page.Serve(ctx, l, token)
}
