package main

import (
	"github.com/spf13/cobra"

	"github.com/nodewright/nodewright/kubeletconfig"
	runtime "github.com/nodewright/nodewright/localcri"
	"github.com/nodewright/nodewright/nodeagent/localcri"
)

// newReset ends what runs on the agent's own container runtime.
func newReset() *cobra.Command {
	o := localcri.ResetOptions{}
	cmd := &cobra.Command{
		Use: "reset", Short: "End all pods of the agent's own container runtime, and remove what they have",
		Long: "End all pods of the agent's own container runtime, unmount their volumes, and remove its files, networks and cgroups.\nData of volumes is kept without --all.",
		Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  agent reset\n  agent reset --images\n  agent reset --all --root-dir /var/lib/second",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return localcri.Reset(cmd.Context(), o, runtime.InProcessConfig{})
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.RootDir, "root-dir", kubeletconfig.DefaultRootDir, "the state `directory` of the agent, which must not run")
	fs.BoolVar(&o.Images, "images", false, "remove the images, too")
	fs.BoolVar(&o.All, "all", false, "remove everything below the state directory: images, volumes of pods, cached objects of a cluster, certificates")
	fs.StringVar(&o.CgroupDriver, "cgroup-driver", "cgroupfs", "the `driver` of the agent's configuration: cgroupfs or systemd")
	completeFlag(cmd, "cgroup-driver", oneOf("cgroupfs", "systemd"))
	return cmd
}
