// Command agent is a node agent: it keeps the pods of a manifests directory
// running on any CRI runtime, takes the kubelet's own flags and configuration
// file, and answers questions about them over a unix socket.
//
//	agent [run] [flags]          run the agent
//	agent get pods [NAME]        list pods
//	agent describe pod NAME      everything about one pod
//	agent logs NAME [CONTAINER]  a container's log
//	agent exec NAME -- COMMAND   run a command in a container
//	agent why NAME               what a pod waits for
//	agent version
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// A command is one subcommand of the binary.
type command struct {
	name, args, short string
	run               func(ctx context.Context, std stdio, args []string) error
}

// stdio is where a command reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

func commands() []command {
	return []command{
		{"run", "[flags]", "run the agent (the default)", runAgent},
		{"get", "pods [NAME] [-n NAMESPACE] [-o wide|json|yaml|name]", "list pods", getPods},
		{"describe", "pod NAME [-n NAMESPACE]", "tell everything about one pod", describePod},
		{"logs", "NAME [CONTAINER] [-f] [--tail N] [--since 5m] [-p]", "print a container's log", logs},
		{"exec", "NAME [-c CONTAINER] [-i] [-t] -- COMMAND...", "run a command in a container", execCommand},
		{"why", "NAME [-n NAMESPACE]", "tell what a pod waits for", why},
		{"version", "", "print the version", version},
	}
}

// exitError ends the process with a code of its own and without a message.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, stdio{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:])
	stop()
	var code exitError
	switch {
	case err == nil:
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.As(err, &code):
		os.Exit(int(code))
	default:
		fmt.Fprintln(os.Stderr, "agent: "+strings.ReplaceAll(err.Error(), "\n", "\nagent: "))
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, std stdio, args []string) error {
	name := "run"
	// Flags before the subcommand (agent --root-dir D get pods) belong to it.
	rest := args
	for i := 0; i < len(args); i++ {
		if strings.HasPrefix(args[i], "-") {
			if takesValue(args[i]) {
				i++
			}
			continue
		}
		name = args[i]
		rest = append(append([]string{}, args[:i]...), args[i+1:]...)
		break
	}
	if len(args) > 0 && (args[0] == "help" || args[0] == "--help" || args[0] == "-h") && len(args) == 1 {
		usage(std.out)
		return nil
	}
	for _, c := range commands() {
		if c.name == name {
			return c.run(ctx, std, rest)
		}
	}
	names := make([]string, 0, len(commands()))
	for _, c := range commands() {
		names = append(names, c.name)
	}
	return fmt.Errorf("unknown command %q; there are %s", name, strings.Join(names, ", "))
}

// takesValue tells whether a flag standing alone is followed by its value.
func takesValue(arg string) bool {
	if strings.Contains(arg, "=") {
		return false
	}
	fs, _ := newRunFlags(io.Discard)
	f := fs.Lookup(strings.TrimLeft(arg, "-"))
	if f == nil {
		return strings.TrimLeft(arg, "-") == "socket" || arg == "-n"
	}
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return !ok || !b.IsBoolFlag()
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "agent keeps pods running on this machine.")
	fmt.Fprintln(w)
	for _, c := range commands() {
		fmt.Fprintf(w, "  agent %-9s %-58s %s\n", c.name, c.args, c.short)
	}
	fmt.Fprintln(w, "\nEvery command takes -h.")
}
