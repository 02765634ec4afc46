// Command agent is a node agent: it runs the pods of a manifests directory on any CRI
// runtime, accepts the kubelet's flags and configuration file, and answers requests
// about the pods over a unix socket.
//
//	agent [run] [flags]          run the agent
//	agent get pods [NAME] [-w]   list pods, and follow them
//	agent get events             what happened to pods and the node
//	agent describe pod NAME      everything about one pod
//	agent logs NAME [CONTAINER]  a container's log
//	agent exec NAME -- COMMAND   run a command in a container
//	agent attach NAME            attach to a container's first process
//	agent cp SOURCE TARGET       copy files to and from a container
//	agent port-forward NAME PORT forward ports to a pod
//	agent debug NAME --image IMAGE  put a container with tools into a pod
//	agent why NAME               why a pod waits
//	agent why node               how close the node is to evictions, and its last decisions
//	agent why NAME --at 03:12    why a pod waited at an earlier time
//	agent record export NAME F   write the record of a pod to a file
//	agent record machine F       write the kernel's files about the machine to a file
//	agent record kubelet DIR     record a kubelet's pods, and what the agent would decide
//	agent replay F               repeat the decisions in a record file, and show differences
//	agent info                   the state of the node, and the paths of the agent's files
//	agent top pods               the resource usage of pods
//	agent images                 which images are kept, why, and which would be removed
//	agent images load FILE       load the images of an archive
//	agent images pull IMAGE      pull an image
//	agent images rm IMAGE        remove an image
//	agent images verify IMAGE    verify the signatures of an image by a policy file
//	agent check -f FILE          mistakes in manifests, and what this machine lacks for them
//	agent fit -f FILE            whether a pod would fit on the node, or why not
//	agent kubeconfig             a kubeconfig for the Kubernetes API of this node
//	agent bundle build DIR -o F  put all manifests of a node into one OCI artifact
//	agent bundle push F REF      upload a bundle to a registry
//	agent bundle apply F|REF     run the pods of a bundle; it rolls back if they do not get ready
//	agent bundle status          which bundle runs, and why another was rejected
//	agent bundle rollback        run the previous bundle again
//	agent reset                  stop all pods of the agent's own container runtime
//	agent ui                     serve a page about the node for a browser
//	agent config                 the configuration in effect, with the origin of each value
//	agent version
//	agent completion SHELL       a script for the shell's completion
//	agent help differences       the differences from the kubelet
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/internal/differences"
)

// stdio has the standard streams of a command.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	program  string // name of the program; "" means agent
}

// Groups of commands in the help.
const (
	running  = "Run"
	looking  = "Inspect pods and the node"
	working  = "Work with containers and images"
	planning = "Plan"
	itself   = "This program"
)

// newRoot returns the command line. Without a subcommand it runs the agent.
func newRoot(std stdio) *cobra.Command {
	root, _ := newRun(std)
	root.Use = cmp.Or(std.program, "agent")
	root.Short = "Keep pods running on this machine"
	root.Long = root.Short + ". The default command is \"run\"."
	root.Example = "  agent run --pod-manifest-path /etc/nodewright/manifests\n  agent get pods -o wide\n  agent why web"
	root.Args, root.ValidArgsFunction = knownCommand, cobra.NoFileCompletions
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	root.SetFlagErrorFunc(flagError)
	addTemplateFuncs()
	root.SetUsageTemplate(usageTemplate)
	root.AddCommand(newMan())
	for _, title := range []string{running, looking, working, planning, itself} {
		root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	}
	run, _ := newRun(std)
	for _, c := range []struct {
		group   string
		command *cobra.Command
	}{
		{running, run}, {running, newReset(std)}, {running, newKubeconfig(std)}, {running, newBundle(std)},
		{looking, newGet(std)}, {looking, newDescribe(std)}, {looking, newWhy(std)}, {looking, newRecord(std)}, {looking, newReplay(std)}, {looking, newInfo(std)}, {looking, newTop(std)}, {looking, newUI(std)},
		{working, newLogs(std)}, {working, newExec(std)}, {working, newAttach(std)}, {working, newCopy(std)}, {working, newPortForward(std)}, {working, newDebug(std)}, {working, newImages(std)},
		{planning, newCheck(std)}, {planning, newFit(std)},
		{itself, newConfig(std)}, {itself, newVersion(std)},
	} {
		c.command.GroupID = c.group
		root.AddCommand(c.command)
	}
	root.SetHelpCommandGroupID(itself)
	root.SetCompletionCommandGroupID(itself)
	if root.Use != "agent" { // such as the installed nodewright-agent
		inExamples(root, root.Use)
	}
	root.AddCommand(&cobra.Command{Use: "differences", Short: "The differences from the kubelet, and their reasons", Long: differences.Text})
	return root
}

// inExamples replaces "agent" by the name of the program in the examples of c and of its
// subcommands.
func inExamples(c *cobra.Command, name string) {
	c.Example = strings.ReplaceAll(c.Example, "  agent ", "  "+name+" ")
	for _, sub := range c.Commands() {
		inExamples(sub, name)
	}
}

// exitError ends the process with this exit code and without a message.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// codedError ends the process with the exit code and the message of the error.
type codedError struct {
	error
	code int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := execute(ctx, stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr, program: filepath.Base(os.Args[0])}, os.Args[1:])
	stop()
	os.Exit(code)
}

// execute runs the command line and returns the exit code of the process. For exec this is the exit
// code of the command in the container, 127 if the container has no such program, or 126 if the
// program cannot be started. For other errors it is 1.
func execute(ctx context.Context, std stdio, args []string) int {
	root := newRoot(std)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var (
		code  exitError
		coded codedError
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case !errors.As(err, &coded):
		coded.code = 1
	}
	if errors.Is(err, local.ErrNoAgent) {
		err = fmt.Errorf("%w\n  start one with \"%s run\", or name the root directory of the one that runs with --root-dir", err, root.Name())
	}
	prefix := root.Name() + ": "
	fmt.Fprintln(std.err, prefix+strings.ReplaceAll(err.Error(), "\n", "\n"+prefix))
	return coded.code
}
