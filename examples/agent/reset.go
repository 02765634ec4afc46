package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodewright/nodewright/kubeletconfig"
	runtime "github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/nodeagent/localcri"
	"github.com/nodewright/nodewright/nodeagent/rootless"
)

// newReset returns the command that stops all pods of the agent's own container runtime.
func newReset(std stdio) *cobra.Command {
	o := localcri.ResetOptions{}
	var yes bool
	cmd := &cobra.Command{
		Use: "reset", Short: "Stop all pods of the agent's own container runtime, and remove their files",
		Long: "Stop all pods of the agent's own container runtime, unmount their volumes, and remove the runtime's files, networks and\ncgroups. Data of volumes is kept unless --all is set. On a terminal the command asks for confirmation.",
		Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  agent reset\n  agent reset --images --yes\n  agent reset --all --root-dir /var/lib/second",
		RunE:    func(cmd *cobra.Command, _ []string) error { return reset(cmd.Context(), std, o, yes) },
	}
	fs := cmd.Flags()
	fs.StringVar(&o.RootDir, "root-dir", kubeletconfig.DefaultRootDir, "the root `directory` of the agent, which must not be running")
	fs.BoolVar(&o.Images, "images", false, "also remove the images")
	fs.BoolVar(&o.All, "all", false, "remove everything below the root directory: images, volumes of pods, cached objects of a cluster, certificates")
	fs.StringVar(&o.CgroupDriver, "cgroup-driver", "cgroupfs", "the `driver` of the agent's configuration: cgroupfs or systemd")
	fs.BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	completeFlag(cmd, "cgroup-driver", oneOf("cgroupfs", "systemd"))
	return cmd
}

// reset stops the pods of the runtime and prints what it removed. On a terminal it first asks
// for confirmation, unless yes is true.
func reset(ctx context.Context, std stdio, o localcri.ResetOptions, yes bool) error {
	dir, err := ownRootDir(o.RootDir)
	if err != nil {
		return err
	}
	o.RootDir = dir
	if err := rootless.Visit(ctx, dir); err != nil {
		return err
	}
	if !yes && isTerminal(std.in) {
		fmt.Fprintf(std.out, "Stop all pods of %s and remove %s? [y/N] ", o.RootDir, resetExtent(o))
		if !confirmed(std) {
			return errors.New("nothing was removed")
		}
	}
	begun, pods, containers := time.Now(), 0, 0
	o.Removed = func(pod string, n int) {
		pods, containers = pods+1, containers+n
		fmt.Fprintf(std.out, "removed pod %s\n", oneLine(pod))
	}
	err = rootless.Remove(ctx, dir, func() error { return localcri.Reset(ctx, o, runtime.InProcessConfig{}) })
	kept := ""
	if !o.Images && !o.All {
		kept = "; images stay (--images), and data of volumes (--all)"
	} else if !o.All {
		kept = "; data of volumes stays (--all)"
	}
	fmt.Fprintf(std.out, "removed %s and %s in %v%s\n", counted(pods, "pod"), counted(containers, "container"), time.Since(begun).Round(time.Millisecond), kept)
	return err
}

// resetExtent describes what a reset removes in addition to the containers.
func resetExtent(o localcri.ResetOptions) string {
	switch {
	case o.All:
		return "everything below it, including data of volumes"
	case o.Images:
		return "their containers, networks and images"
	}
	return "their containers and networks"
}

// confirmed reads a line from standard input, and reports whether it is y or yes.
func confirmed(std stdio) bool {
	line, err := bufio.NewReader(std.in).ReadString('\n')
	answer := strings.ToLower(strings.TrimSpace(line))
	return err == nil && (answer == "y" || answer == "yes")
}

// counted formats a number of things, such as "1 pod" or "2 pods".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
