package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/agent/local"
)

// uiTokenEnv has the token that lets a browser in, in place of one made up.
const uiTokenEnv = "NODEWRIGHT_UI_TOKEN"

// serveUI serves a page about the node until ctx ends.
func serveUI(ctx context.Context, std stdio, args []string) error {
	fs := flag.NewFlagSet("agent ui", flag.ContinueOnError)
	var c clientFlags
	c.register(fs)
	listen := fs.String("listen", "127.0.0.1:0", "`address` and port of the page, which is served without encryption")
	words, err := parseNames(fs, std, args)
	if err != nil {
		return err
	}
	if len(words) > 0 {
		return fmt.Errorf("ui takes no argument, got %q", words[0])
	}
	log, err := zap.NewProduction()
	if err != nil {
		return err
	}
	page, err := local.NewPage(local.PageConfig{Agent: c.client(), Log: log})
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", *listen)
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
