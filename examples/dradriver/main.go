// Command dradriver is a driver of dynamic resource allocation (DRA) to try out a node agent.
// A container with a claim for this driver gets a device file /dev/dra/CLAIM, which is the
// device /dev/null, and the variable DRA_CLAIM with the claim's namespace and name.
//
//	dradriver --name gpu.example.com
//
// The driver has no state except its CDI files, so it may be killed at any time. While the
// file of --sick exists, the driver reports its device as unhealthy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

func main() {
	d := driver{}
	flag.StringVar(&d.name, "name", "gpu.example.com", "`name` of the driver")
	flag.StringVar(&d.registry, "registry", "/var/lib/kubelet/plugins_registry", "`directory` where the agent looks for plugins")
	flag.StringVar(&d.dir, "dir", "/var/lib/kubelet/plugins", "`directory` for the driver's own socket")
	flag.StringVar(&d.cdi, "cdi", "/var/run/cdi", "`directory` where the runtime looks for CDI files")
	flag.StringVar(&d.sick, "sick", "", "`file` that makes the device unhealthy while it exists")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := errors.Join(d.check(), extra(flag.Args())); err != nil {
		fmt.Fprintln(os.Stderr, "dradriver:", err)
		os.Exit(2)
	}
	if err := d.run(ctx, func(what string) { fmt.Println(what) }); err != nil {
		fmt.Fprintln(os.Stderr, "dradriver:", err)
		os.Exit(1)
	}
}

// extra returns an error for unexpected arguments.
func extra(args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("arguments %q: want only flags", args)
}

// check returns an error for invalid flags, and creates the directories.
func (d *driver) check() error {
	var errs []error
	if d.name == "" || d.name != filepath.Base(d.name) {
		errs = append(errs, fmt.Errorf("--name %q: want a DNS subdomain", d.name))
	}
	for _, f := range []struct {
		flag string
		dir  *string
	}{{"--registry", &d.registry}, {"--dir", &d.dir}, {"--cdi", &d.cdi}} {
		abs, err := filepath.Abs(*f.dir)
		if err == nil {
			*f.dir = abs // other processes use the paths
			err = os.MkdirAll(abs, 0o755)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s %q: %w", f.flag, *f.dir, err))
		}
	}
	return errors.Join(errs...)
}
