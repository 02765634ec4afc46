package usage_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodewright/nodewright/node/stats"
	"github.com/nodewright/nodewright/nodeagent/internal/usage"
)

// grouped are details that know cgroups above pods.
type grouped struct {
	details
	list []stats.Detail
	err  error
}

func (g grouped) Groups() ([]stats.Detail, error) { return g.list, g.err }

// Cgroups above pods have series of their own, by their path alone; an error shows, and
// costs nothing else.
func TestGroups(t *testing.T) {
	c := everything()
	known := c.Details.(details)
	own := known[usage.Key{PodUID: "u", Container: usage.Sandbox}].Usage
	c.Details = grouped{known, []stats.Detail{
		{Path: "/kubepods", Usage: own, Cgroup: filled(stats.Cgroup{})}, {Path: "/kubepods/burstable", Usage: own}, {Path: "/system.slice", Usage: own},
		{Path: "/", Usage: own}, {Path: "/bare"}, {Usage: own},
	}, errors.New("some")}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(usage.Containers(c))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string][]string{}
	for _, f := range families {
		for _, m := range f.Metric {
			id, others := "", ""
			for _, l := range m.Label {
				switch l.GetName() {
				case "id":
					id = l.GetValue()
				case "container", "image", "name", "namespace", "pod":
					others += l.GetValue()
				}
			}
			if others == "" && id != "" && id != "/" {
				series[f.GetName()] = append(series[f.GetName()], id)
			}
		}
		if f.GetName() == "container_scrape_error" && f.Metric[0].GetGauge().GetValue() != 1 {
			t.Error("the error does not show")
		}
	}
	for name, want := range map[string]string{
		"container_memory_working_set_bytes": "/kubepods /kubepods/burstable /system.slice",
		"container_cpu_usage_seconds_total":  "/kubepods /kubepods/burstable /system.slice",
		"container_spec_memory_limit_bytes":  "/kubepods",
	} {
		got := series[name]
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s of %q, want %s", name, got, want)
		}
	}
}
