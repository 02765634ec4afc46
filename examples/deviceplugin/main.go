// Command deviceplugin is a device plugin to try out a node agent. It offers files as
// devices. A device whose file is removed becomes unhealthy.
//
//	mkdir /tmp/devices && touch /tmp/devices/a /tmp/devices/b
//	deviceplugin --resource example.com/thing --devices /tmp/devices
//
// A container with the limit example.com/thing: 1 has the name of its device in the
// variable DEVICES, and the device's file at /dev/things/NAME. The file is mounted there or,
// if it is a device node, a device node is created there. If the name of a file ends in @N,
// the device is near NUMA node N.
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
	p := plugin{}
	flag.StringVar(&p.resource, "resource", "example.com/thing", "name of the `resource`")
	flag.StringVar(&p.devices, "devices", "", "`directory` whose files are the devices")
	flag.StringVar(&p.sockets, "sockets", "/var/lib/kubelet/device-plugins", "`directory` of the agent's kubelet.sock")
	flag.StringVar(&p.cdi, "cdi", "", "`directory` of the runtime's CDI specifications, such as /etc/cdi; by default the plugin writes none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := errors.Join(p.check(), extra(flag.Args())); err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
		os.Exit(2)
	}
	if err := p.run(ctx, func(what string) { fmt.Println(what) }); err != nil {
		fmt.Fprintln(os.Stderr, "deviceplugin:", err)
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

// check returns an error for invalid flags.
func (p *plugin) check() error {
	var errs []error
	for flag, dir := range map[string]*string{"--devices": &p.devices, "--sockets": &p.sockets, "--cdi": &p.cdi} {
		if flag == "--cdi" && *dir == "" {
			continue
		}
		if info, err := os.Stat(*dir); err != nil || !info.IsDir() {
			errs = append(errs, fmt.Errorf("%s %q: want a directory", flag, *dir))
		}
		if abs, err := filepath.Abs(*dir); err == nil {
			*dir = abs // other processes use the paths
		}
	}
	return errors.Join(errs...)
}
