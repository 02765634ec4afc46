package kubeletconfig

import (
	"slices"
	"strings"
	"testing"
)

func TestFeatureGates(t *testing.T) {
	for gates, want := range map[string]struct{ warning, mistake string }{
		"{}": {},
		"{ContainerCheckpoint: false, PodLogsQuerySplitStreams: true}": {}, // have an effect
		"{PodCertificateRequest: true}":                                {},
		"{LocalStorageCapacityIsolationFSQuotaMonitoring: true}":       {},
		"{EnvFiles: true, PodsAPI: false, NodeLogQuery: true}":         {}, // as the agent works
		"{APIServerIdentity: false, KubeletTracing: true}":             {}, // of other programs, and locked to the given value
		"{EnvFiles: false}":       {warning: "featureGates.EnvFiles: false has no effect: this node behaves as with true"},
		"{PodsAPI: true}":         {warning: "featureGates.PodsAPI: true has no effect: this node behaves as with false"},
		"{EventedPLEG: false}":    {warning: "featureGates.EventedPLEG: false has no effect: this node behaves as with true"},
		"{AllAlpha: true}":        {warning: "featureGates.AllAlpha: true has no effect: enable single gates"},
		"{AllBeta: false}":        {},
		"{NodeSwapp: true}":       {mistake: "featureGates.NodeSwapp: true: want a feature gate of Kubernetes 1.37, such as NodeSwap"},
		"{envfiles: true}":        {mistake: "such as EnvFiles"},
		"{VerticalScaling: true}": {mistake: "such as InPlacePodVerticalScaling,"},
		"{Xyzzyxyzzy: true}":      {mistake: "featureGates.Xyzzyxyzzy: true: want a feature gate of Kubernetes 1.37"},
		"{NodeSwap: false}":       {mistake: "featureGates.NodeSwap: false: want true: the gate is locked"},
	} {
		_, warnings, err := loadWith(t, configHead+"featureGates: "+gates+"\n")
		if want.mistake == "" && err != nil || want.mistake != "" && (err == nil || !strings.Contains(err.Error(), want.mistake)) {
			t.Errorf("%s: %v, want %q", gates, err, want.mistake)
		}
		if got := strings.Join(warnings, ";"); got != want.warning {
			t.Errorf("%s: warnings %q, want %q", gates, got, want.warning)
		}
	}
	if _, _, err := loadWith(t, configHead, "--feature-gates=NodeSwapp=true"); err == nil || !strings.Contains(err.Error(), "such as NodeSwap") {
		t.Errorf("a flag: %v", err)
	}
	if _, warnings, err := loadWith(t, configHead, "--feature-gates=EnvFiles=false,NodeLogQuery=true"); err != nil || len(warnings) != 1 || !strings.HasPrefix(warnings[0], "--feature-gates: EnvFiles: false") {
		t.Errorf("a flag: %q, %v", warnings, err)
	}
}

// An embedder's own gates are its own.
func TestGatesOfAnEmbedder(t *testing.T) {
	dir := files(t, map[string]string{"k.yaml": configHead + "featureGates: {Mine: true, PodsAPI: true}\n"})
	c, warnings, err := Load(Options{File: dir + "/k.yaml", Used: []string{"featureGates.Mine", "featureGates.PodsAPI"}, Flags: parse(t, "--max-pods=5")})
	if err != nil || len(warnings) != 0 || !c.FeatureGates["Mine"] {
		t.Errorf("%v, %q", err, warnings)
	}
}

func TestGatesOfAConfiguration(t *testing.T) {
	c, _, err := loadWith(t, configHead+"featureGates: {ContainerCheckpoint: false, PodsAPI: true, APIServerIdentity: false}\n")
	if err != nil {
		t.Fatal(err)
	}
	all := c.Gates()
	for _, want := range []Gate{
		{"ContainerCheckpoint", "BETA", false}, {"PodsAPI", "BETA", false}, {"APIServerIdentity", "BETA", false},
		{"EventedPLEG", "ALPHA", true}, {"NodeSwap", "", true},
	} {
		if !slices.Contains(all, want) {
			t.Errorf("no %+v", want)
		}
	}
	if !slices.IsSortedFunc(knownGates, func(a, b knownGate) int { return strings.Compare(a.name, b.name) }) {
		t.Error("gates are not in order")
	}
}
