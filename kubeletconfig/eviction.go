package kubeletconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/nodewright/nodewright/cgroups"
	"github.com/nodewright/nodewright/eviction/rank"
	"github.com/nodewright/nodewright/internal/quantity"
)

// HardEviction returns the hard eviction thresholds by signal, without disabled ones (0% or 100%).
// The node's allocatable resources are reduced by these thresholds.
func (c *Config) HardEviction() map[string]string { return hardEviction(&c.KubeletConfiguration) }

func hardEviction(c *v1beta1.KubeletConfiguration) map[string]string {
	out := maps.Clone(c.EvictionHard)
	maps.DeleteFunc(out, func(_, v string) bool { return v == "0%" || v == "100%" })
	return out
}

// Thresholds returns the hard and soft eviction thresholds. If enforceNodeAllocatable contains
// pods, it adds a threshold for the memory of all pods together.
func (c *Config) Thresholds() ([]rank.Threshold, error) {
	list, err := rank.Parse(rank.Text{
		Hard: c.EvictionHard, Soft: c.EvictionSoft, SoftGrace: c.EvictionSoftGracePeriod, MinReclaim: c.EvictionMinimumReclaim,
		Allocatable: slices.Contains(c.EnforceNodeAllocatable, string(cgroups.EnforcePods)),
	})
	if err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	return list, nil
}

// evictionSignals are the signals for which thresholds can be configured.
var evictionSignals = []string{
	string(rank.SignalMemory), string(rank.SignalNodeFs), string(rank.SignalNodeFsInodes),
	string(rank.SignalImageFs), string(rank.SignalImageFsInodes), string(rank.SignalPIDs),
}

func validateEviction(c *v1beta1.KubeletConfiguration, bad reporter) {
	for _, f := range []struct {
		field string
		texts map[string]string
		text  func(one map[string]string) rank.Text
	}{
		{"evictionHard", c.EvictionHard, func(one map[string]string) rank.Text { return rank.Text{Hard: one} }},
		{"evictionSoft", c.EvictionSoft, softAlone},
		{"evictionSoftGracePeriod", c.EvictionSoftGracePeriod, func(one map[string]string) rank.Text {
			return rank.Text{SoftGrace: one, Hard: map[string]string{}}
		}},
		{"evictionMinimumReclaim", c.EvictionMinimumReclaim, func(one map[string]string) rank.Text {
			return rank.Text{MinReclaim: one, Hard: map[string]string{}}
		}},
	} {
		for _, signal := range slices.Sorted(maps.Keys(f.texts)) {
			value := f.texts[signal]
			if !rank.Signal(signal).Known() {
				bad(f.field, signal, "one of "+strings.Join(evictionSignals, ", "))
			} else if !quantity.Cheap(value) {
				bad(f.field+"."+signal, value, wantQuantity)
			} else if _, err := rank.Parse(f.text(map[string]string{signal: value})); err != nil {
				// Use only the part with the allowed values: bad adds the value itself.
				_, want, _ := strings.Cut(err.Error(), "; want ")
				bad(f.field+"."+signal, value, want)
			}
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		if _, ok := c.EvictionSoftGracePeriod[signal]; !ok {
			bad("evictionSoft."+signal, c.EvictionSoft[signal], "evictionSoftGracePeriod."+signal+" to be set too")
		}
	}
	positive(bad, interval{"evictionPressureTransitionPeriod", c.EvictionPressureTransitionPeriod.Duration})
}

// softAlone returns soft thresholds with an arbitrary grace period for each, to check the thresholds
// alone. A missing grace period is reported separately.
func softAlone(one map[string]string) rank.Text {
	grace := map[string]string{}
	for signal := range one {
		grace[signal] = "1s"
	}
	return rank.Text{Soft: one, SoftGrace: grace, Hard: map[string]string{}}
}
