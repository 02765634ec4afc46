package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/eviction/threshold"
)

// setEvictionDefaults fills in the kubelet's defaults. Done twice, it comes to
// the same.
func setEvictionDefaults(c *kubeletconfig.KubeletConfiguration) {
	orDefault(&c.MergeDefaultEvictionSettings, false)
	orDefault(&c.LocalStorageCapacityIsolation, true)
	if c.EvictionHard == nil {
		c.EvictionHard = threshold.Defaults()
	} else if *c.MergeDefaultEvictionSettings {
		all := threshold.Defaults()
		maps.Copy(all, c.EvictionHard)
		c.EvictionHard = all
	}
	if c.EvictionPressureTransitionPeriod.Duration == 0 {
		c.EvictionPressureTransitionPeriod.Duration = 5 * time.Minute
	}
}

// keptFree are the hard thresholds that are not switched off (0% or 100%): what
// they keep free is not for pods.
func keptFree(c *kubeletconfig.KubeletConfiguration) map[string]string {
	out := maps.Clone(c.EvictionHard)
	maps.DeleteFunc(out, func(_, v string) bool { return v == "0%" || v == "100%" })
	return out
}

// evictionText is what the configuration says of thresholds, as package
// threshold reads it.
func evictionText(c *kubeletconfig.KubeletConfiguration) threshold.Text {
	return threshold.Text{
		Hard: c.EvictionHard, Soft: c.EvictionSoft, SoftGrace: c.EvictionSoftGracePeriod, MinReclaim: c.EvictionMinimumReclaim,
		Allocatable: slices.Contains(c.EnforceNodeAllocatable, string(cgroups.EnforcePods)),
	}
}

// validateEviction tells what is wrong with the fields about eviction.
func validateEviction(c *kubeletconfig.KubeletConfiguration, bad func(field string, value any, want string)) {
	for _, f := range []struct {
		field string
		texts map[string]string
		text  func(one map[string]string) threshold.Text
	}{
		{"evictionHard", c.EvictionHard, func(one map[string]string) threshold.Text { return threshold.Text{Hard: one} }},
		{"evictionSoft", c.EvictionSoft, func(one map[string]string) threshold.Text {
			grace := map[string]string{}
			for signal := range one {
				grace[signal] = "1s"
			}
			return threshold.Text{Soft: one, SoftGrace: grace, Hard: map[string]string{}}
		}},
		{"evictionSoftGracePeriod", c.EvictionSoftGracePeriod, func(one map[string]string) threshold.Text {
			return threshold.Text{SoftGrace: one, Hard: map[string]string{}}
		}},
		{"evictionMinimumReclaim", c.EvictionMinimumReclaim, func(one map[string]string) threshold.Text {
			return threshold.Text{MinReclaim: one, Hard: map[string]string{}}
		}},
	} {
		for _, signal := range slices.Sorted(maps.Keys(f.texts)) {
			if !threshold.Signal(signal).Known() {
				bad(f.field, signal, "one of "+strings.Join(evictionSignals, ", "))
			} else if _, err := threshold.Parse(f.text(map[string]string{signal: f.texts[signal]})); err != nil {
				// It names the value too; what is wanted follows.
				_, want, _ := strings.Cut(err.Error(), "; want ")
				bad(f.field+"."+signal, f.texts[signal], want)
			}
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		if _, ok := c.EvictionSoftGracePeriod[signal]; !ok {
			bad("evictionSoft."+signal, c.EvictionSoft[signal], "evictionSoftGracePeriod."+signal+" beside it")
		}
	}
	if d := c.EvictionPressureTransitionPeriod.Duration; d < 0 {
		bad("evictionPressureTransitionPeriod", d.String(), "a duration above 0")
	}
	if n := c.EvictionMaxPodGracePeriod; n < 0 {
		bad("evictionMaxPodGracePeriod", n, "0 or more seconds")
	}
}

// evictionSignals are those that one sets thresholds for: others follow.
var evictionSignals = []string{
	string(threshold.Memory), string(threshold.NodeFs), string(threshold.NodeFsInodes),
	string(threshold.ImageFs), string(threshold.ImageFsInodes), string(threshold.PIDs),
}

// evictionOf is what the configuration makes of eviction. An agent that takes
// its pods from manifests alone has none but static ones.
func evictionOf(c *kubeletconfig.KubeletConfiguration, pods agent.Cgroups, standalone bool) (*agent.Eviction, error) {
	text := evictionText(c)
	root := ""
	if r, ok := pods.(interface{ Root() string }); ok {
		root = r.Root()
	}
	list, err := threshold.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	return &agent.Eviction{
		Thresholds: list, Notify: agent.KernelNotices(root, list), Standalone: standalone,
		Transition: c.EvictionPressureTransitionPeriod.Duration, MaxPodGraceSeconds: int64(c.EvictionMaxPodGracePeriod),
		IgnoreLimits: !*c.LocalStorageCapacityIsolation,
	}, nil
}

// evictionFlags are the kubelet's flags about eviction.
type evictionFlags struct {
	hard, soft, grace, reclaim pairsFlag
	transition                 time.Duration
	maxGrace                   int
	merge, isolation           bool
}

func (e *evictionFlags) register(fs *flag.FlagSet) {
	e.hard.between, e.soft.between, e.grace.between, e.reclaim.between = "<", "<", "=", "="
	fs.Var(&e.hard, "eviction-hard", "below what pods are evicted at once, `signal<amount` with commas between, such as memory.available<1Gi")
	fs.Var(&e.soft, "eviction-soft", "below what pods are evicted after a grace period, `signal<amount` with commas between")
	fs.Var(&e.grace, "eviction-soft-grace-period", "how long a soft threshold has to be met, `signal=duration` with commas between")
	fs.Var(&e.reclaim, "eviction-minimum-reclaim", "how far above its threshold a signal has to come, `signal=amount` with commas between")
	fs.DurationVar(&e.transition, "eviction-pressure-transition-period", 0, "the `time` that a condition of pressure outlasts its cause; 5m")
	fs.IntVar(&e.maxGrace, "eviction-max-pod-grace-period", 0, "the most `seconds` that a pod gets to end at a soft threshold")
	fs.BoolVar(&e.merge, "merge-default-eviction-settings", false, "add the default thresholds to those that are given")
	fs.BoolVar(&e.isolation, "local-storage-capacity-isolation", true, "evict pods that exceed their limits of local storage")
}

// apply lays the flags over the configuration.
func (e *evictionFlags) apply(c *kubeletconfig.KubeletConfiguration, set map[string]bool) error {
	over := func(flag string, apply func()) {
		if set[flag] {
			apply()
		}
	}
	over("eviction-hard", func() { c.EvictionHard = e.hard.pairs })
	over("eviction-soft", func() { c.EvictionSoft = e.soft.pairs })
	over("eviction-soft-grace-period", func() { c.EvictionSoftGracePeriod = e.grace.pairs })
	over("eviction-minimum-reclaim", func() { c.EvictionMinimumReclaim = e.reclaim.pairs })
	over("eviction-pressure-transition-period", func() {
		c.EvictionPressureTransitionPeriod = metav1.Duration{Duration: e.transition}
	})
	over("eviction-max-pod-grace-period", func() { c.EvictionMaxPodGracePeriod = int32(e.maxGrace) })
	over("merge-default-eviction-settings", func() { c.MergeDefaultEvictionSettings = &e.merge })
	over("local-storage-capacity-isolation", func() { c.LocalStorageCapacityIsolation = &e.isolation })
	setEvictionDefaults(c)
	var errs []error
	validateEviction(c, func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("invalid flags: %s: %s: want %s", field, show(value), want))
	})
	return errors.Join(errs...)
}

// pairsFlag reads names and values with commas between.
type pairsFlag struct {
	between string
	pairs   map[string]string
}

// String writes the pairs in order.
func (p *pairsFlag) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(p.pairs)) {
		out = append(out, name+p.between+p.pairs[name])
	}
	return strings.Join(out, ",")
}

// Set adds pairs, as the flag may be given more than once. Without any, there
// are none.
func (p *pairsFlag) Set(s string) error {
	if p.pairs == nil {
		p.pairs = map[string]string{}
	}
	for pair := range strings.SplitSeq(s, ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, p.between)
		if !ok || name == "" {
			return fmt.Errorf("name%svalue, with commas between", p.between)
		}
		p.pairs[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return nil
}
