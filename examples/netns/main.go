//go:build linux

// Netns runs a command in a new network namespace with an address, and removes the namespace
// and the address when the command ends. If a run is killed, the next run removes its
// namespace.
//
//	sudo go run ./examples/netns -- cat /proc/net/fib_trie
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"time"

	"github.com/nodewright/nodewright/network"
	"github.com/nodewright/nodewright/network/bridge"
	"github.com/nodewright/nodewright/network/cni"
)

// plugins are the values of -plugin: the machine's CNI plugins, the built-in plugin bridge,
// and the plugin static of this program.
var plugins = map[string]func() (network.Plugin, error){
	"cni": func() (network.Plugin, error) { return cni.New(cni.Config{}) },
	"bridge": func() (network.Plugin, error) {
		return bridge.New(bridge.Config{StateDir: "/run/netns-example-bridge"})
	},
	"static": newStatic,
}

func main() {
	name := flag.String("plugin", "bridge", fmt.Sprintf("network plugin, one of %q", slices.Sorted(maps.Keys(plugins))))
	state := flag.String("state", "/run/netns-example", "`directory` of records")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := run(ctx, *name, *state, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "netns:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name, state string, command []string) error {
	newPlugin, ok := plugins[name]
	if !ok || len(command) == 0 {
		return fmt.Errorf("plugin %q, command %q: want one of the plugins %q, and a command", name, command, slices.Sorted(maps.Keys(plugins)))
	}
	plugin, err := newPlugin()
	if err != nil {
		return err
	}
	n, err := network.New(network.Config{Plugins: []network.Plugin{plugin}, StateDir: state, Prefix: "example"})
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := n.Run(serving); err != nil {
			fmt.Fprintln(os.Stderr, "netns:", err)
		}
	}()
	defer func() { stop(); <-served }()

	asked, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for n.Status() != nil && asked.Err() == nil { // the plugin may still be reading its files
		time.Sleep(10 * time.Millisecond)
	}
	id := fmt.Sprint("run-", os.Getpid())
	result, err := n.Attach(asked, network.Attachment{ID: id, Name: "netns"})
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "netns:", result.IPs, "in", result.Netns)
	return errors.Join(inNetns(result.Netns, func() error {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		return cmd.Run()
	}), n.Detach(serving, id))
}
