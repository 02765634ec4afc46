package main

import (
	"bytes"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/eviction/rank"
)

func TestEvictionConfig(t *testing.T) {
	for _, tc := range []struct {
		name, content string
		flags         []string
		hard          map[string]string // nil: the defaults
		keeps         string            // of 10Gi of memory
		err           string
	}{
		{name: "defaults", keeps: "100Mi"},
		{name: "given ones are all", content: "evictionHard: {memory.available: 1Gi}", hard: map[string]string{"memory.available": "1Gi"}, keeps: "1Gi"},
		{name: "none", content: "evictionHard: {}", hard: map[string]string{}, keeps: "0"},
		{name: "switched off", content: "evictionHard: {memory.available: 100%, nodefs.available: 0%}", hard: map[string]string{}, keeps: "0"},
		{name: "percent", content: "evictionHard: {memory.available: 10%}", hard: map[string]string{"memory.available": "10%"}, keeps: "1Gi"},
		{
			name: "merged", content: "evictionHard: {memory.available: 2Gi, imagefs.inodesFree: 0%}\nmergeDefaultEvictionSettings: true",
			hard:  map[string]string{"memory.available": "2Gi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%", "pid.available": "10%"},
			keeps: "2Gi",
		},
		{name: "soft", content: "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}", keeps: "100Mi"},
		{name: "soft without grace", content: "evictionSoft: {memory.available: 1Gi}", err: `evictionSoft.memory.available: "1Gi": want evictionSoftGracePeriod.memory.available to be set too`},
		{name: "unknown signal", content: "evictionHard: {memory.free: 1Gi}", err: `evictionHard: "memory.free": want one of memory.available, nodefs.available`},
		{name: "unknown in grace", content: "evictionSoftGracePeriod: {x: 1m}", err: `evictionSoftGracePeriod: "x": want one of`},
		{name: "negative", content: "evictionHard: {memory.available: -1Gi}", err: `evictionHard.memory.available: "-1Gi": want more than 0`},
		{name: "percent above all", content: "evictionHard: {memory.available: 150%}", err: `evictionHard.memory.available: "150%": want a percentage from 0% to 100%`},
		{name: "empty", content: `evictionHard: {memory.available: ""}`, err: `evictionHard.memory.available: "": want a quantity`},
		{name: "grace", content: "evictionSoftGracePeriod: {memory.available: 30mins}", err: `evictionSoftGracePeriod.memory.available: "30mins": want a duration`},
		{name: "grace below 0", content: "evictionSoftGracePeriod: {memory.available: -30s}", err: `"-30s": want 0 or more`},
		{name: "reclaim", content: "evictionMinimumReclaim: {imagefs.available: -15%}", err: `evictionMinimumReclaim.imagefs.available: "-15%": want a percentage`},
		{name: "transition", content: "evictionPressureTransitionPeriod: -5m", err: `evictionPressureTransitionPeriod: "-5m0s": want a duration above 0`},
		{
			name: "flags win", content: "evictionHard: {memory.available: 1Gi}", flags: []string{"--eviction-hard=memory.available<3Gi,pid.available<10%"},
			hard: map[string]string{"memory.available": "3Gi", "pid.available": "10%"}, keeps: "3Gi",
		},
		{name: "flag without any", flags: []string{"--eviction-hard="}, hard: map[string]string{}, keeps: "0"},
		{
			name: "flag of soft ones", flags: []string{"--eviction-soft=memory.available<1Gi", "--eviction-soft-grace-period=memory.available=1m"}, keeps: "100Mi",
		},
		{name: "wrong flag", flags: []string{"--eviction-hard=memory.available=3Gi"}, err: `--eviction-hard="memory.available=3Gi": want name<value`},
		{name: "wrong in a flag", flags: []string{"--eviction-hard=memory.available<much"}, err: `evictionHard.memory.available: "much": want a quantity`},
		{name: "transition by flag", flags: []string{"--eviction-pressure-transition-period=30s", "--eviction-minimum-reclaim=nodefs.available=1Gi", "--local-storage-capacity-isolation=false"}, keeps: "100Mi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, c, warnings, err := loadRun(t, configHead+"staticPodPath: /m\nfailCgroupV1: false\nfailSwapOn: false\n"+tc.content+"\n", tc.flags...)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v; want %s", err, tc.err)
				}
				return
			}
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%v, warnings %q", err, warnings)
			}
			want := tc.hard
			if want == nil {
				want = rank.Defaults()
			}
			if !maps.Equal(c.HardEviction(), want) {
				t.Errorf("hard %v; want %v", c.HardEviction(), want)
			}
			capacity := v1.ResourceList{v1.ResourceMemory: resource.MustParse("10Gi")}
			left := c.Node(capacity).Allocatable()[v1.ResourceMemory]
			left.Add(resource.MustParse(tc.keeps))
			if left.Cmp(capacity[v1.ResourceMemory]) != 0 {
				t.Errorf("allocatable and %s are %s", tc.keeps, left.String())
			}
			if _, err := c.Thresholds(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestShutdownConfig(t *testing.T) {
	for _, tc := range []struct{ content, flag, err string }{
		{content: ""},
		{content: "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s"},
		{content: "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 20}, {priority: 1000, shutdownGracePeriodSeconds: 5}]"},
		{content: "shutdownGracePeriod: 30s", flag: "--shutdown-on-sigterm"},
		{content: "shutdownGracePeriodCriticalPods: 10s", err: `shutdownGracePeriodCriticalPods: "10s": want at most shutdownGracePeriod, 0s`},
		{content: "shutdownGracePeriod: 1500ms", err: `shutdownGracePeriod: "1.5s": want whole seconds`},
		{content: "shutdownGracePeriod: -1s", err: `shutdownGracePeriod: "-1s": want whole seconds`},
		{
			content: "shutdownGracePeriod: 30s\nshutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 20}]",
			err:     "none if shutdownGracePeriod",
		},
		{
			content: "shutdownGracePeriodByPodPriority: [{priority: 7, shutdownGracePeriodSeconds: 2}, {priority: 7, shutdownGracePeriodSeconds: 1}]",
			err:     "shutdownGracePeriodByPodPriority[1].priority: 7: want each priority once",
		},
		{
			content: "shutdownGracePeriodByPodPriority: [{priority: 7, shutdownGracePeriodSeconds: -2}]",
			err:     "shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSeconds: -2: want 0 or more",
		},
		{flag: "--shutdown-on-sigterm", err: "--shutdown-on-sigterm=true: want shutdownGracePeriod"},
	} {
		_, c, warnings, err := loadRun(t, configHead+"staticPodPath: /m\nfailCgroupV1: false\nfailSwapOn: false\n"+tc.content+"\n", strings.Fields(tc.flag)...)
		switch {
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("%q: %v; want %s", tc.content, err, tc.err)
		case tc.err == "" && (err != nil || len(warnings) > 0):
			t.Errorf("%q: %v, warnings %q", tc.content, err, warnings)
		case tc.err == "" && (c.ShutdownTime() == 0) != (tc.content == ""):
			t.Errorf("%q: pods get %v", tc.content, c.ShutdownTime())
		}
	}
}

func TestWriteNodeWhy(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	n := &local.NodeWhy{
		Name: "edge", Advice: []string{"set net.ipv4.ip_forward"}, ShuttingDown: true,
		Conditions: []v1.NodeCondition{{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue, Message: "kubelet has insufficient memory available"}, {Type: v1.NodeDiskPressure, Status: v1.ConditionFalse}},
		Figures: []local.NodeFigure{
			{Signal: "memory.available", Threshold: "100Mi", Available: "50Mi", Capacity: "1Gi", Met: true, Acting: true, Since: now.Add(-time.Minute)},
			{Signal: "nodefs.available", Threshold: "1Gi", Soft: true, Grace: "1m0s", MinReclaim: "500Mi", Available: "2Gi", Capacity: "10Gi", Stale: "12s"},
			{Signal: "pid.available", Threshold: "10"},
		},
		Work: []local.NodeWork{{Kind: "starts", Running: 4, Limit: 4, Waiting: 96}, {Kind: "ends", Running: 2}},
		Decisions: []local.NodeDecision{{
			Time: now.Add(-10 * time.Second), What: "memory.available", Cause: "interval", Available: "50Mi", Threshold: "100Mi", Need: "50Mi", Outcome: "evicting", Repeats: 2,
			Lines: []string{"default/hog (priority 0) uses 300Mi, requests 10Mi: chosen", "default/hog was given 1s, and ended within 1.2s"},
		}},
		Parts: []local.Part{{Name: "eviction", Hooks: []string{"Runner", "Admitter"}}, {Name: "licence", Hooks: []string{"Preparer"}}},
	}
	var b bytes.Buffer
	if err := writeNodeWhy(&b, n, now); err != nil {
		t.Fatal(err)
	}
	const want = `advice: set net.ipv4.ip_forward
the machine is shutting down: no pod may start
MemoryPressure: True (kubelet has insufficient memory available)
DiskPressure: False

SIGNAL             AVAILABLE   OF     THRESHOLD                  STATE
memory.available   50Mi        1Gi    100Mi                      low, and the agent is reclaiming, since 60s
nodefs.available   2Gi         10Gi   1Gi for 1m0s, then +500Mi  enough (not read for 12s)
pid.available      -           -      10                         not known

WORK     RUNNING   AT MOST   WAITING
starts   4         4         96
ends     2         -         0

last decisions:
10s ago, memory.available: 50Mi available, threshold 100Mi, 50Mi to free (interval): evicting, and 2 times the same
  default/hog (priority 0) uses 300Mi, requests 10Mi: chosen
  default/hog was given 1s, and ended within 1.2s

parts, in the order in which they are called:
eviction: Runner, Admitter
licence: Preparer
`
	if squeezed(b.String()) != squeezed(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

// squeezed is a text without the width of its columns.
func squeezed(s string) string {
	var out strings.Builder
	for line := range strings.Lines(s) {
		fmt.Fprintln(&out, strings.Join(strings.Fields(line), " "))
	}
	return out.String()
}
