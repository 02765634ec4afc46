package nodeagent

import (
	"testing"

	"github.com/nodewright/nodewright/cri"
	"github.com/nodewright/nodewright/server"
)

func TestGatesOfTheServer(t *testing.T) {
	for _, tc := range []struct {
		gates                        string
		noWebSockets, split, noCheck bool
	}{
		{"", false, false, false},
		{"featureGates: {ExtendWebSocketsToKubelet: false}", true, false, false},
		{"featureGates: {PodLogsQuerySplitStreams: true}", false, true, false},
		{"featureGates: {ContainerCheckpoint: false, ExtendWebSocketsToKubelet: true}", false, false, true},
	} {
		c, warnings, err := load(t, configHead+tc.gates)
		if err != nil || len(warnings) > 0 {
			t.Fatal(warnings, err)
		}
		cfg := server.Config{Checkpoint: &cri.Client{}}
		applyGates(&cfg, c.FeatureGates)
		if cfg.DisableWebSocketTranslation != tc.noWebSockets || cfg.SplitLogStreams != tc.split || (cfg.Checkpoint == nil) != tc.noCheck {
			t.Errorf("%q: got %t, %t, %v", tc.gates, cfg.DisableWebSocketTranslation, cfg.SplitLogStreams, cfg.Checkpoint)
		}
	}
}
