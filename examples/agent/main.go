// Command agent is a node agent: it keeps the pods of a manifests directory
// running on any CRI runtime, takes the kubelet's own flags and configuration
// file, and answers questions about them over a unix socket.
//
//	agent [run] [flags]          run the agent
//	agent get pods [NAME] [-w]   list pods, and follow them
//	agent get events             what happened to pods and the node
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
//	agent ui                     a page about the node, for a browser
//	agent version
//	agent completion SHELL       a script that completes all of this
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

	"github.com/nodewright/nodewright/internal/cmdline"
	"github.com/nodewright/nodewright/internal/differences"
)

// A command is one subcommand of the binary.
type command struct {
	cmdline.Command
	run func(ctx context.Context, std stdio, args []string) error
}

// stdio has the input and outputs of a command.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	flags    func(*flag.FlagSet) // takes a command's flags in place of its run; nil to run
}

// The topics of the usage.
const (
	running  = "Run"
	looking  = "Inspect pods and the node"
	working  = "Work with containers and images"
	planning = "Plan"
	itself   = "This program"
)

func commands() []command {
	return []command{
		{cmdline.Command{Name: "run", Args: "[flags]", Short: "run the agent (the default)", Topic: running}, runAgent},
		{cmdline.Command{Name: "reset", Args: "[--images | --all]", Short: "end all pods of the agent's own container runtime, unmount their volumes, and remove its files, networks and cgroups; data of volumes is kept without --all", Topic: running}, reset},
		{cmdline.Command{Name: "kubeconfig", Args: "[--user NAME] [--group view|edit|admin] [--server URL] [--valid 8760h]", Short: "create a kubeconfig with a new client certificate for the Kubernetes API of this node", Topic: running}, kubeconfig},
		{cmdline.Command{Name: "get", Args: "pods|events [NAME] [-n NAMESPACE] [-o wide|json|yaml|name] [-w]", Short: "list pods, or events of pods and the node", Topic: looking, Words: "pods events", Pods: true}, get},
		{cmdline.Command{Name: "describe", Args: "pod NAME [-n NAMESPACE]", Short: "show everything about one pod", Topic: looking, Words: "pod", Pods: true}, describePod},
		{cmdline.Command{Name: "why", Args: "NAME|node [-n NAMESPACE]", Short: "say why a pod waits, or how close the node is to evictions", Topic: looking, Words: "node", Pods: true}, why},
		{cmdline.Command{Name: "top", Args: "pods|node [-n NAMESPACE]", Short: "show the resource usage of pods or the node", Topic: looking, Words: "pods node"}, top},
		{cmdline.Command{Name: "ui", Args: "[--listen 127.0.0.1:0]", Short: "serve a page about the node at a secret address", Topic: looking}, serveUI},
		{cmdline.Command{Name: "logs", Args: "NAME [CONTAINER] [-f] [--tail N] [--since 5m] [-p]", Short: "print a container's log", Topic: working, Pods: true}, logs},
		{cmdline.Command{Name: "exec", Args: "NAME [-c CONTAINER] [-i] [-t] -- COMMAND...", Short: "run a command in a container", Topic: working, Pods: true}, execCommand},
		{cmdline.Command{Name: "images", Args: "[-o json] | load FILE... | pull|rm IMAGE...", Short: "list images with the reason why each is kept or would be removed; or load, pull and remove images", Topic: working, Words: "load pull rm"}, imagesCommand},
		{cmdline.Command{Name: "fit", Args: "-f FILE [-o json]", Short: "say whether a pod would fit on this node, with its CPUs and devices, or why not", Topic: planning}, fitPod},
		{cmdline.Command{Name: "completion", Args: "bash|zsh|fish", Short: "print a script that completes commands, flags and names of pods", Topic: itself, Words: "bash zsh fish"}, completion},
		{cmdline.Command{Name: "version", Short: "print the version", Topic: itself}, version},
	}
}

// exitError ends the process with a code of its own and without a message.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}, os.Args[1:])
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
		_, err := io.WriteString(std.out, differences.Text)
		return err
	case name == "help" && (len(rest) == 0 || strings.HasPrefix(rest[0], "-")), name == "" && (isFlag(rest, "h") || isFlag(rest, "help")):
		usage(std.out)
		return nil
	case name == "help":
		name, rest = rest[0], []string{"-h"}
	case name == "":
		name = "run"
	case name == completeCommand:
		return complete(ctx, std, args[1:])
	}
	var names []string
	for _, c := range commands() {
		if c.Name == name {
			return c.run(ctx, std, rest)
		}
		names = append(names, c.Name)
	}
	return fmt.Errorf("unknown command %q; there are %s", name, strings.Join(names, ", "))
}

// split returns the subcommand in args, or "", and the other arguments. Flags before the
// subcommand (agent --root-dir D get pods) belong to it.
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

// takesValue reports whether the next argument is the value of the flag arg.
func takesValue(arg string) bool {
	name := strings.TrimLeft(arg, "-")
	fs, _ := newRunFlags()
	if f := fs.Lookup(name); f != nil {
		return !cmdline.IsBool(f.Value)
	}
	return slices.Contains(clientValues, name)
}

func usage(w io.Writer) {
	fmt.Fprintln(w, "agent keeps pods running on this machine.")
	var all []cmdline.Command
	for _, c := range commands() {
		all = append(all, c.Command)
	}
	_ = cmdline.Usage(w, "agent", all)
	fmt.Fprintln(w, "\nEvery command takes -h. agent --help=differences lists what differs from the kubelet.")
}

// help prints the use of the command that fs belongs to.
func help(w io.Writer, fs *flag.FlagSet) {
	topics, topic := []string{""}, func(*flag.Flag) string { return "" }
	if fs.Name() == "agent run" {
		topics, topic = cmdline.AgentTopics, cmdline.AgentTopic
	}
	for _, c := range commands() {
		if "agent "+c.Name == fs.Name() {
			_ = cmdline.Help(w, "agent", c.Command, fs, topics, topic)
		}
	}
}
