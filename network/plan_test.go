package network

import (
	"fmt"
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	const path = "/netns/nodewright-0123456789abcdef0123456789abcdef"
	here := Space{SpaceNamed, 7}
	attached := &progress{Space: 7, Result: &Result{}}
	for name, c := range map[string]struct {
		boot     string // of the record; the present one is "now"
		plugin   string // there is "mine"
		progress *progress
		space    Space
		want     string
	}{
		"attached":                                       {"now", "mine", attached, here, "keep named 7"},
		"attached, mount gone":                           {"now", "mine", attached, Space{}, "lose none 0"},
		"attached, another namespace":                    {"now", "mine", attached, Space{SpaceNamed, 8}, "lose none 0"},
		"attached, another mount":                        {"now", "mine", attached, Space{Kind: SpaceForeign}, "lose none 0"},
		"attached, only the file is left":                {"now", "mine", attached, Space{Kind: SpaceEmpty}, "lose none 0"},
		"attached by a plugin that is gone":              {"now", "gone", attached, here, "keep named 7"},
		"planned":                                        {"now", "mine", nil, Space{}, "takeBack none 0"},
		"planned, namespace made":                        {"now", "mine", nil, here, "takeBack named 7"},
		"planned, before the mount":                      {"now", "mine", nil, Space{Kind: SpaceEmpty}, "takeBack none 0"},
		"planned by a plugin that is gone":               {"now", "gone", nil, here, "strand named 7"},
		"detaching":                                      {"now", "mine", &progress{Space: 7, Detaching: true}, here, "takeBack named 7"},
		"detaching, unmounted":                           {"now", "mine", &progress{Space: 7, Detaching: true}, Space{}, "takeBack none 0"},
		"detaching, another namespace":                   {"now", "mine", &progress{Space: 7, Detaching: true}, Space{SpaceNamed, 8}, "takeBack none 0"},
		"attached, other boot":                           {"old", "mine", attached, Space{}, "takeBack none 0"},
		"attached, other boot, a namespace all the same": {"old", "mine", attached, here, "takeBack none 0"},
		"planned, other boot":                            {"old", "mine", nil, here, "takeBack none 0"},
		"detaching, other boot":                          {"old", "mine", &progress{Detaching: true}, Space{}, "takeBack none 0"},
		"other boot, by a plugin that is gone":           {"old", "gone", attached, Space{}, "strand none 0"},
	} {
		t.Run(name, func(t *testing.T) {
			f := found{
				records: []kept{{&record{Plugin: c.plugin, Boot: c.boot, Netns: path}, c.progress}},
				spaces:  map[string]Space{path: c.space}, boot: "now", plugins: map[string]bool{"mine": true}, dir: "/netns", prefix: "nodewright",
			}
			if got := describe(plan(f)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func describe(actions []action) string {
	var out []string
	for _, a := range actions {
		out = append(out, fmt.Sprintf("%s %s %d",
			[]string{"keep", "lose", "takeBack", "strand", "unmount"}[a.step], []string{"none", "empty", "named", "foreign"}[a.space.Kind], a.space.ID))
	}
	return strings.Join(out, ", ")
}

func TestPlanForNamespacesWithoutARecord(t *testing.T) {
	digits := strings.Repeat("0123456789abcdef", 2)
	f := found{dir: "/netns", prefix: "nw", boot: "now", spaces: map[string]Space{
		"/netns/nw-" + strings.Repeat("2", 32): {SpaceNamed, 2},
		"/netns/nw-" + strings.Repeat("1", 32): {Kind: SpaceEmpty},
		"/netns/nw-" + strings.Repeat("3", 32): {Kind: SpaceForeign},
		"/netns/nw-" + digits[1:]:              {SpaceNamed, 4},
		"/netns/nw-" + digits + "0":            {SpaceNamed, 5},
		"/netns/nwx-" + digits:                 {SpaceNamed, 6},
		"/other/nw-" + digits:                  {SpaceNamed, 7},
		"/netns/sub/nw-" + digits:              {SpaceNamed, 8},
	}}
	if got := describe(plan(f)); got != "unmount empty 0, unmount named 2" {
		t.Error(got)
	}
}

func TestSpaceNames(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 4)
	for id, want := range map[string]string{
		long:            "nw-0123456789abcdef0123456789abcdef",
		long[:32]:       "nw-0123456789abcdef0123456789abcdef",
		long[:31]:       "",
		long[:31] + "g": "",
		long[:31] + "A": "",
		"a":             "nw-ca978112ca1bbdcafac231b39a23dc4d",
		"x.corrupt-1":   "",
		"pod_1.a-b":     "",
	} {
		got := spaceName("nw", id)
		if want != "" && got != want || !isSpaceName("nw", got) || len(got) != 35 {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}
