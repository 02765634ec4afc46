package nodeagent

import (
	"context"
	"os"

	"go.uber.org/zap"

	"github.com/nodewright/nodewright/internal/kernel"
)

// measuredPods is the highest number of pods on one node that the project measures
// (docs/operate/limits.md).
const measuredPods = 1000

// filesOfAgent is an estimate of the files that the agent has open beside the files of pods:
// sockets of clients and plugins, and watched directories.
const filesOfAgent = 256

// warnOfSize logs if maxPods is more than was measured, or more than the machine's limits allow.
// It skips a limit that cannot be read.
func warnOfSize(ctx context.Context, maxPods int64, machine *kernel.Reader, log *zap.Logger) {
	if maxPods > measuredPods {
		log.Warn("maxPods is higher than the number of pods that was measured on one node", zap.Int64("maxPods", maxPods), zap.Int64("measured", measuredPods))
	}
	warn := func(limit, advice string, is, need int64) {
		if is < need {
			log.Warn("a limit of the machine is too low for maxPods", zap.String("limit", limit), zap.Int64("is", is), zap.Int64("need", need),
				zap.Int64("maxPods", maxPods), zap.String("advice", advice))
		}
	}
	if n, err := machine.Sysctl(ctx, "fs/inotify/max_user_watches"); err == nil {
		warn("fs.inotify.max_user_watches", "raise it with sysctl: without a watch a container's log is polled", n, maxPods)
	}
	if n, err := machine.OpenFilesLimit(ctx, os.Getpid()); err == nil {
		if most, limited := n.Number(); limited {
			warn("open files", "set maxOpenFiles: on the agent's own runtime a pod takes a connection", int64(min(most, 1<<62)), maxPods+filesOfAgent)
		}
	}
}
