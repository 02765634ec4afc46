package main

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/gc/containergc"
	"github.com/nodewright/nodewright/gc/imagegc"
)

// gcFields are the fields of KubeletConfiguration about what is removed.
var gcFields = []string{
	"imageMinimumGCAge", "imageMaximumGCAge", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent",
	"containerLogMaxSize", "containerLogMaxFiles", "containerLogMaxWorkers", "containerLogMonitorInterval",
}

// setGCDefaults fills in the kubelet's defaults.
func setGCDefaults(c *kubeletconfig.KubeletConfiguration) {
	if c.ImageMinimumGCAge.Duration == 0 {
		c.ImageMinimumGCAge.Duration = 2 * time.Minute
	}
	orDefault(&c.ImageGCHighThresholdPercent, 85)
	orDefault(&c.ImageGCLowThresholdPercent, 80)
	if c.ContainerLogMaxSize == "" {
		c.ContainerLogMaxSize = "10Mi"
	}
	orDefault(&c.ContainerLogMaxFiles, 5)
	orDefault(&c.ContainerLogMaxWorkers, 1)
	orDefault(&c.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
}

// leastLogInterval is the kubelet's least containerLogMonitorInterval.
const leastLogInterval = 3 * time.Second

func validateGC(c *kubeletconfig.KubeletConfiguration, bad func(field string, value any, want string)) {
	high, low := *c.ImageGCHighThresholdPercent, *c.ImageGCLowThresholdPercent
	highOK := high >= 0 && high <= 100
	if !highOK {
		bad("imageGCHighThresholdPercent", high, "0 to 100")
	}
	switch {
	case low < 0 || low > 100:
		bad("imageGCLowThresholdPercent", low, "0 to 100")
	case highOK && low >= high:
		bad("imageGCLowThresholdPercent", low, fmt.Sprintf("less than imageGCHighThresholdPercent, which is %d", high))
	}
	minAge, maxAge := c.ImageMinimumGCAge.Duration, c.ImageMaximumGCAge.Duration
	if minAge < 0 {
		bad("imageMinimumGCAge", minAge.String(), "a duration of 0 or more")
	}
	switch {
	case maxAge < 0:
		bad("imageMaximumGCAge", maxAge.String(), "a duration of 0 (for ever) or more")
	case maxAge > 0 && maxAge <= minAge:
		bad("imageMaximumGCAge", maxAge.String(), fmt.Sprintf("0 (for ever), or more than imageMinimumGCAge, which is %v", minAge))
	}
	if n, err := bytesOf(c.ContainerLogMaxSize); err != nil || n == 0 {
		bad("containerLogMaxSize", c.ContainerLogMaxSize, "a quantity of bytes such as 10Mi, or a negative one to rotate no logs")
	}
	if n := *c.ContainerLogMaxFiles; n < 2 {
		bad("containerLogMaxFiles", n, "2 or more")
	}
	if n := *c.ContainerLogMaxWorkers; n < 1 {
		bad("containerLogMaxWorkers", n, "1 or more")
	}
	if d := c.ContainerLogMonitorInterval.Duration; d < leastLogInterval {
		bad("containerLogMonitorInterval", d.String(), fmt.Sprintf("a duration of %v or more", leastLogInterval))
	}
}

// bytesOf reads a quantity that is a whole number.
func bytesOf(s string) (int64, error) {
	q, err := resource.ParseQuantity(s)
	if err != nil {
		return 0, err
	}
	n, ok := q.AsInt64()
	if !ok {
		return 0, errors.New("not a whole number of bytes")
	}
	return n, nil
}

// gcFlags are the flags about what is removed: the kubelet's, which it never
// had in its file, and this agent's own.
type gcFlags struct {
	containerTTL     time.Duration
	deadContainers   int
	deadPerContainer int
	podLogBudget     string
	pinnedImages     string
}

func (g *gcFlags) register(fs *flag.FlagSet) {
	fs.DurationVar(&g.containerTTL, "minimum-container-ttl-duration", 0, "how `long` a dead container stays at least after its end")
	fs.IntVar(&g.deadContainers, "maximum-dead-containers", -1, "the `number` of dead containers that stay in all; any, if negative")
	fs.IntVar(&g.deadPerContainer, "maximum-dead-containers-per-container", 1, "the `number` of dead instances of each container that stay; any, if negative")
	fs.StringVar(&g.podLogBudget, "pod-log-budget", "", "the `bytes`, such as 200Mi, that all logs of a pod may take; any number")
	fs.StringVar(&g.pinnedImages, "pinned-images", "", "`names` of images that are never removed, with commas between: with a tag or digest, without for a whole repository, or its beginning and /*")
}

// leastPodLogBudget is the least that logrotate takes.
const leastPodLogBudget = 128 << 10

func (g *gcFlags) validate(bad func(format string, args ...any)) {
	if g.containerTTL < 0 {
		bad("--minimum-container-ttl-duration=%v: want a duration of 0 or more", g.containerTTL)
	}
	if n, err := g.budget(); err != nil || n != 0 && n < leastPodLogBudget {
		bad("--pod-log-budget=%q: want a quantity of bytes such as 200Mi, at least 128Ki, or 0 for any number", g.podLogBudget)
	}
}

func (g *gcFlags) budget() (int64, error) {
	if g.podLogBudget == "" {
		return 0, nil
	}
	return bytesOf(g.podLogBudget)
}

// gcOf is what flags and configuration say of what is removed. They have been
// validated.
func gcOf(f *gcFlags, c *kubeletconfig.KubeletConfiguration) agent.GC {
	size, _ := bytesOf(c.ContainerLogMaxSize)
	budget, _ := f.budget()
	gc := agent.GC{
		Images: &imagegc.Policy{
			High: int(*c.ImageGCHighThresholdPercent), Low: int(*c.ImageGCLowThresholdPercent),
			MinAge: c.ImageMinimumGCAge.Duration, MaxAge: c.ImageMaximumGCAge.Duration,
		},
		Containers: &containergc.Policy{MinAge: f.containerTTL, MaxPerContainer: f.deadPerContainer, MaxContainers: f.deadContainers},
		Logs: agent.LogRotation{
			Off: size < 0, MaxSize: size, MaxFiles: int(*c.ContainerLogMaxFiles), PodBudget: budget,
			Workers: int(*c.ContainerLogMaxWorkers), Longest: c.ContainerLogMonitorInterval.Duration,
		},
	}
	for name := range strings.SplitSeq(f.pinnedImages, ",") {
		if name = strings.TrimSpace(name); name != "" {
			gc.PinnedImages = append(gc.PinnedImages, name)
		}
	}
	return gc
}
