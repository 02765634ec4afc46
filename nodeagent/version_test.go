package nodeagent

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestVersionInfo(t *testing.T) {
	for release, ok := range map[string]bool{
		"v1.37.0": true, "v1.37.12-rc.1+k": true, "": false, "1.37.0": false, "v1.37": false, "v1.38.0": false, "v2.36.0": false, "v1.37.0 ": false, "v": false,
	} {
		info, err := VersionInfo(release)
		if (err == nil) != ok || ok && (info.GitVersion != release || info.Major != "1" || info.Minor != "37" || info.GoVersion == "") {
			t.Errorf("%q: %+v, %v", release, info, err)
		}
		if err != nil && !strings.Contains(err.Error(), "v1.37.x") {
			t.Errorf("%q: error %v", release, err)
		}
	}
}

// The release that a node is told to present itself as is in its metrics and in what
// others are made with.
func TestKubernetesVersionOfANode(t *testing.T) {
	for asked, want := range map[string]string{"": "v1.37.0", "v1.37.5+mine": "v1.37.5+mine"} {
		o := options(t, "")
		o.KubernetesVersion, o.Metrics = asked, prometheus.NewRegistry()
		n, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Builder().Version.GitVersion; got != want {
			t.Errorf("version %q, want %q", got, want)
		}
		_ = n.Close()
		all, err := o.Metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range all {
			for _, m := range f.GetMetric() {
				if f.GetName() != "kubernetes_build_info" {
					continue
				}
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				found = len(labels) == 9 && labels["git_version"] == want && labels["major"] == "1" && labels["minor"] == "37" && m.GetGauge().GetValue() == 1
			}
		}
		if !found {
			t.Errorf("kubernetes_build_info is not there, or wrong, in %d families", len(all))
		}
	}
	o := options(t, "")
	o.KubernetesVersion = "v1.2.3"
	if _, err := New(t.Context(), o); err == nil || !strings.Contains(err.Error(), "Options.KubernetesVersion: version \"v1.2.3\"") {
		t.Errorf("error %v", err)
	}
}

// The linker sets the variable by this name.
func TestVersionOfTheBuild(t *testing.T) {
	kubernetesVersion = "v1.37.9"
	defer func() { kubernetesVersion = "" }()
	n, err := New(t.Context(), options(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	if got := n.Builder().Version.GitVersion; got != "v1.37.9" {
		t.Errorf("version %q", got)
	}
}
