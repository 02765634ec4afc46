package main

import (
	"flag"
	"strings"

	"github.com/nodewright/nodewright/kubeletconfig"
)

// gcFlags are the agent's own flags about garbage collection.
type gcFlags struct {
	podLogBudget string
	pinnedImages string
}

func (g *gcFlags) register(fs *flag.FlagSet) {
	fs.StringVar(&g.podLogBudget, "pod-log-budget", "", "the maximum total size of a pod's logs in `bytes`, such as 200Mi; default: no limit")
	fs.StringVar(&g.pinnedImages, "pinned-images", "", "`names` of images that are never removed, comma-separated: a name with a tag or digest, a repository, or a prefix that ends in /*")
}

// leastPodLogBudget is the smallest budget that package logrotate accepts, in bytes.
const leastPodLogBudget = 128 << 10

func (g *gcFlags) validate(bad func(format string, args ...any)) {
	if n, err := g.budget(); err != nil || n != 0 && n < leastPodLogBudget {
		bad("--pod-log-budget=%q: want a quantity of bytes such as 200Mi, at least 128Ki, or 0 for any number", g.podLogBudget)
	}
}

func (g *gcFlags) budget() (int64, error) {
	if g.podLogBudget == "" {
		return 0, nil
	}
	return kubeletconfig.Bytes(g.podLogBudget)
}

// budgetBytes returns --pod-log-budget in bytes, or 0 for no limit. Call validate first.
func (g *gcFlags) budgetBytes() int64 {
	n, _ := g.budget()
	return n
}

// pinned returns the names in --pinned-images.
func (g *gcFlags) pinned() (names []string) {
	for name := range strings.SplitSeq(g.pinnedImages, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}
