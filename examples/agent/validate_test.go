package main

import (
	"strings"
	"testing"
)

// An agent without a source of pods would look fine and do nothing.
func TestValidateNoPods(t *testing.T) {
	f, err := parseRunFlags([]string{"--pod-manifest-path="})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadConfig(f); err == nil || !strings.Contains(err.Error(), "--pod-manifest-path, or staticPodPath") {
		t.Errorf("error %v", err)
	}
}
