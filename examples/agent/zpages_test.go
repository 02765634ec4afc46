package main

import (
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestVerbosity(t *testing.T) {
	log, level := newLogger(2)
	for _, tc := range []struct {
		v     int
		debug bool
	}{{2, false}, {4, true}, {10, true}, {3, false}, {0, false}} {
		if err := level.SetLogLevel(tc.v); err != nil {
			t.Fatal(err)
		}
		if got := level.LogLevel(); got != tc.v || log.Core().Enabled(zapcore.DebugLevel) != tc.debug || !log.Core().Enabled(zap.InfoLevel) {
			t.Errorf("%d is %d, debug %t", tc.v, got, !tc.debug)
		}
	}
}

// What the node reports its configuration and flags has no secrets.
func TestConfigzAndFlagz(t *testing.T) {
	c, _, _, err := load(t, configHead+"staticPodURL: https://me:hidden@pods.example/x\nstaticPodURLHeader: {Authorization: [Bearer hidden]}\n")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(c.Redacted())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"kind":"KubeletConfiguration"`, `"apiVersion":"kubelet.config.k8s.io/v1beta1"`, `me:xxxxx@pods.example`, `"syncFrequency":"1m0s"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}
	f, err := parseRunFlags([]string{"--manifest-url", "https://me:hidden@pods.example/x", "--v", "3"})
	if err != nil {
		t.Fatal(err)
	}
	all := f.all()
	if all["manifest-url"] != "https://me:xxxxx@pods.example/x" || all["v"] != "3" || all["root-dir"] == "" {
		t.Errorf("flags %v", all)
	}
	if strings.Contains(string(b), "hidden") || c.StaticPodURLHeader["Authorization"][0] != "Bearer hidden" {
		t.Errorf("a secret is told, or the configuration was changed: %s", b)
	}
}
