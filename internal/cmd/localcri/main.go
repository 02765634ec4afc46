// Command localcri runs the container runtime of package localcri as a process of
// its own, on a unix socket; tests use it in place of containerd. The directory -dir
// contains its files, the CRI socket cri.sock, and the socket import.sock, which accepts
// image archives over HTTP.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/localcri/image"
	"github.com/nodewright/nodewright/network/bridge"
)

// options are the values of the flags.
type options struct {
	dir     string
	reset   bool
	runc    string
	subnet  string
	cdi     string
	mirrors map[string]string // from a registry's name to the mirror's URL
}

func main() {
	o := options{mirrors: map[string]string{}}
	flag.StringVar(&o.dir, "dir", "", "absolute path of the `directory` of all its files")
	flag.BoolVar(&o.reset, "reset", false, "stop all containers, remove everything that an earlier process created, and exit")
	flag.StringVar(&o.runc, "runc", "", "absolute `path` of runc")
	flag.StringVar(&o.subnet, "subnet", "", "subnet of the pods' addresses in `CIDR` notation; default: a free one")
	flag.StringVar(&o.cdi, "cdi", "", "absolute path of the `directory` of CDI specifications; default: /etc/cdi and /var/run/cdi")
	flag.Func("mirror", "`REGISTRY=URL`: pull the images of REGISTRY from URL; may be repeated", func(s string) error {
		registry, url, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("-mirror %q: want REGISTRY=URL", s)
		}
		o.mirrors[registry] = url
		return nil
	})
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "localcri:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	log, err := zap.NewDevelopment()
	if err != nil {
		return err
	}
	cfg, err := o.config()
	if err != nil {
		return err
	}
	cfg.Log = log
	if o.reset {
		return localcri.Reset(ctx, cfg, localcri.ResetOptions{Images: true})
	}
	r, err := localcri.NewInProcess(ctx, cfg)
	if err != nil {
		return err
	}
	server, err := localcri.NewServer(localcri.ServerConfig{Socket: filepath.Join(o.dir, "cri.sock"), Runtime: r.Runtime(), Images: r.Images(), Streams: r.Streams(), Log: log})
	if err != nil {
		return err
	}
	// A client that waits for cri.sock may use import.sock at once, so import.sock comes first.
	imports, err := listenImports(filepath.Join(o.dir, "import.sock"))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.Run(ctx) })
	g.Go(func() error { return server.Run(ctx) })
	g.Go(func() error { return serveImports(ctx, imports, r) })
	return g.Wait()
}

// config returns the configuration of the runtime. With -runc, the runtime has the same
// handlers as a containerd of package containerdtest.
func (o options) config() (localcri.InProcessConfig, error) {
	if !filepath.IsAbs(o.dir) {
		return localcri.InProcessConfig{}, fmt.Errorf("-dir %q: want an absolute path", o.dir)
	}
	cfg := localcri.InProcessConfig{RootDir: filepath.Join(o.dir, "localcri"), Network: localcri.NetworkBridge, Registries: map[string]image.Registry{}}
	if o.runc != "" {
		cfg.Handlers = map[string]localcri.Handler{
			"runc": {Path: o.runc}, "test-handler": {Path: o.runc}, "bare": {Path: o.runc, PrivilegedWithoutHostDevices: true},
		}
	}
	if o.cdi != "" {
		cfg.CDIDirs = []string{o.cdi}
	}
	if o.subnet != "" {
		subnet, err := netip.ParsePrefix(o.subnet)
		if err != nil {
			return cfg, fmt.Errorf("-subnet: %w", err)
		}
		cfg.Bridge = bridge.Config{Subnet: subnet}
	}
	for registry, url := range o.mirrors {
		scheme, host, ok := strings.Cut(url, "://")
		if !ok {
			return cfg, fmt.Errorf("-mirror %s=%q: want a URL", registry, url)
		}
		reach := image.Endpoint{PlainHTTP: scheme == "http"}
		cfg.Registries[registry] = image.Registry{Mirrors: []image.Mirror{{Host: host, Endpoint: reach}}}
	}
	return cfg, nil
}

// listenImports listens on a unix socket. It replaces the socket of an earlier process.
func listenImports(socket string) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", socket)
}

// serveImports imports the image archive in the body of each request, until ctx ends.
func serveImports(ctx context.Context, l net.Listener, r *localcri.InProcess) error {
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, err := r.Import(req.Context(), req.Body, ""); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
