package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/nodewright/nodewright/kubeletconfig"
	runtime "github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/nodeagent/localcri"
)

// reset ends what runs on the agent's own container runtime.
func reset(ctx context.Context, std stdio, args []string) error {
	fs := flag.NewFlagSet("agent reset", flag.ContinueOnError)
	o := localcri.ResetOptions{}
	fs.StringVar(&o.RootDir, "root-dir", kubeletconfig.DefaultRootDir, "the state `directory` of the agent, which must not run")
	fs.BoolVar(&o.Images, "images", false, "remove the images, too")
	fs.BoolVar(&o.All, "all", false, "remove everything below the state directory: images, volumes of pods, cached objects of a cluster, certificates")
	fs.StringVar(&o.CgroupDriver, "cgroup-driver", "cgroupfs", "the `driver` of the agent's configuration: cgroupfs or systemd")
	words, err := parseNames(fs, std, args)
	if err != nil {
		return err
	}
	if len(words) > 0 {
		return fmt.Errorf("reset takes no argument, got %q", words[0])
	}
	return localcri.Reset(ctx, o, runtime.InProcessConfig{})
}
