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
//	agent why node               how far the node is from evicting pods, and what it did
//	agent top pods               what pods use
//	agent images                 which images stay, why, and which would go
//	agent images load FILE       install the images of an archive
//	agent images pull IMAGE      pull an image
//	agent images rm IMAGE        remove an image
//	agent fit -f FILE            where a pod would run, or why it would not
//	agent kubeconfig             a kubeconfig for the Kubernetes API of this node
//	agent reset                  end all pods of the agent's own container runtime
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
	"slices"
	"strings"
	"syscall"

	"github.com/nodewright/nodewright/nodeagent/differences"
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
		{"why", "NAME|node [-n NAMESPACE]", "tell what a pod waits for, or how the node fares", why},
		{"top", "pods|node [-n NAMESPACE]", "tell what pods or the node use", top},
		{"images", "[-o json] | load FILE... | pull|rm IMAGE...", "tell which images stay, why, and which would go; or bring and remove some", imagesCommand},
		{"fit", "-f FILE [-o json]", "tell where a pod would run here, or why it would not", fitPod},
		{"kubeconfig", "[--user NAME] [--group view|edit|admin] [--server URL] [--valid 8760h]", "make a certificate for the Kubernetes API of this node, as a kubeconfig", kubeconfig},
		{"reset", "[--images]", "end all pods of the agent's own container runtime, and remove what it made", reset},
		{"version", "", "print the version", version},
	}
}

// exitError ends the process with a code of its own and without a message.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, stdio{os.Stdin, os.Stdout, os.Stderr}, os.Args[1:])
	stop()
	os.Exit(code)
}

// execute runs the command line and returns the process's exit code: that of
// the command in the container for exec, otherwise 1 after any error.
func execute(ctx context.Context, std stdio, args []string) int {
	err := dispatch(ctx, std, args)
	var code exitError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(std.err, "agent: "+strings.ReplaceAll(err.Error(), "\n", "\nagent: "))
	return 1
}

func dispatch(ctx context.Context, std stdio, args []string) error {
	name, rest := split(args)
	switch {
	case name == "" && (isFlag(rest, "help=differences") || isFlag(rest, "h=differences")):
		return differences.Print(std.out)
	case name == "help" && (len(rest) == 0 || strings.HasPrefix(rest[0], "-")), name == "" && (isFlag(rest, "h") || isFlag(rest, "help")):
		usage(std.out)
		return nil
	case name == "help":
		name, rest = rest[0], []string{"-h"}
	case name == "":
		name = "run"
	}
	var names []string
	for _, c := range commands() {
		if c.name == name {
			return c.run(ctx, std, rest)
		}
		names = append(names, c.name)
	}
	return fmt.Errorf("unknown command %q; there are %s", name, strings.Join(names, ", "))
}

// split takes the subcommand out of args, or "" if there is none. Flags before
// it (agent --root-dir D get pods) belong to it.
func split(args []string) (name string, rest []string) {
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		switch {
		case !strings.HasPrefix(args[i], "-"):
			return args[i], slices.Delete(slices.Clone(args), i, i+1)
		case takesValue(args[i]):
			i++
		}
	}
	return "", args
}

func isFlag(args []string, name string) bool {
	return len(args) > 0 && (args[0] == "-"+name || args[0] == "--"+name)
}

// clientValues are the flags with a value that only the other commands have.
var clientValues = []string{"n", "namespace", "o", "output", "c", "container", "tail", "since", "filename", "name", "user", "group", "server", "valid"}

// takesValue tells whether a flag standing alone is followed by its value.
func takesValue(arg string) bool {
	name := strings.TrimLeft(arg, "-")
	fs, _ := newRunFlags()
	if f := fs.Lookup(name); f != nil {
		return !isBool(f.Value)
	}
	return slices.Contains(clientValues, name)
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "agent keeps pods running on this machine.")
	fmt.Fprintln(w)
	for _, c := range commands() {
		fmt.Fprintf(w, "  agent %-9s %-58s %s\n", c.name, c.args, c.short)
	}
	fmt.Fprintln(w, "\nEvery command takes -h. agent --help=differences tells what is otherwise than with the kubelet.")
}
