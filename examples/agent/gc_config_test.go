package main

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/agent"
	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/gc/containergc"
	"github.com/nodewright/nodewright/gc/imagegc"
)

func TestValidateGC(t *testing.T) {
	for _, tc := range []struct {
		content string
		want    string // of the error; "" means that there is none
	}{
		{"imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 0", ""},
		{"imageGCHighThresholdPercent: 101", "imageGCHighThresholdPercent: 101: want 0 to 100"},
		{"imageGCHighThresholdPercent: -1", "imageGCHighThresholdPercent: -1: want 0 to 100"},
		{"imageGCLowThresholdPercent: -1", "imageGCLowThresholdPercent: -1: want 0 to 100"},
		{"imageGCLowThresholdPercent: 101", "imageGCLowThresholdPercent: 101: want 0 to 100"},
		{"imageGCLowThresholdPercent: 85", "imageGCLowThresholdPercent: 85: want less than imageGCHighThresholdPercent, which is 85"},
		{"imageMinimumGCAge: 1h", ""},
		{"imageMinimumGCAge: -1s", `imageMinimumGCAge: "-1s": want a duration of 0 or more`},
		{"imageMaximumGCAge: 121s", ""},
		{"imageMaximumGCAge: 2m", `imageMaximumGCAge: "2m0s": want 0 (for ever), or more than imageMinimumGCAge, which is 2m0s`},
		{"imageMaximumGCAge: -1s", `imageMaximumGCAge: "-1s": want a duration of 0`},
		{"containerLogMaxSize: 1Gi", ""},
		{"containerLogMaxSize: '-1'", ""},
		{"containerLogMaxSize: '0'", `containerLogMaxSize: "0": want a quantity of bytes such as 10Mi, or a negative one to rotate no logs`},
		{"containerLogMaxSize: 10MB", `containerLogMaxSize: "10MB": want a quantity`},
		{"containerLogMaxSize: 100m", `containerLogMaxSize: "100m": want a quantity`},
		{"containerLogMaxFiles: 2", ""},
		{"containerLogMaxFiles: 1", "containerLogMaxFiles: 1: want 2 or more"},
		{"containerLogMaxWorkers: 0", "containerLogMaxWorkers: 0: want 1 or more"},
		{"containerLogMonitorInterval: 3s", ""},
		{"containerLogMonitorInterval: 2s", `containerLogMonitorInterval: "2s": want a duration of 3s or more`},
	} {
		_, warnings, path, err := load(t, configHead+tc.content)
		switch {
		case len(warnings) > 0:
			t.Errorf("%s: warnings %q", tc.content, warnings)
		case tc.want == "" && err != nil:
			t.Errorf("%s: error %v, want none", tc.content, err)
		case tc.want != "" && (err == nil || !strings.HasPrefix(err.Error(), "invalid configuration: "+path+": "+tc.want)):
			t.Errorf("%s: error %v, want %q", tc.content, err, tc.want)
		}
	}
}

func TestGCFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--minimum-container-ttl-duration=-1s": "--minimum-container-ttl-duration=-1s: want a duration of 0 or more",
		"--minimum-container-ttl-duration=x":   `--minimum-container-ttl-duration="x": want a duration such as 30s, 5m or 1h30m`,
		"--maximum-dead-containers=x":          `--maximum-dead-containers="x": want a whole number`,
		"--pod-log-budget=100Ki":               `--pod-log-budget="100Ki": want a quantity of bytes such as 200Mi, at least 128Ki`,
		"--pod-log-budget=-1":                  `--pod-log-budget="-1": want`,
		"--pod-log-budget=1m":                  `--pod-log-budget="1m": want`,
	} {
		if _, err := parseRunFlags(stdio{}, []string{flag}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}

func TestGCOf(t *testing.T) {
	kubelet := agent.GC{
		Images:     &imagegc.Policy{High: 85, Low: 80, MinAge: 2 * time.Minute},
		Containers: &containergc.Policy{MaxPerContainer: 1, MaxContainers: -1},
		Logs:       agent.LogRotation{MaxSize: 10 << 20, MaxFiles: 5, Workers: 1, Longest: 10 * time.Second},
	}
	for _, tc := range []struct {
		flags   []string
		content string
		want    agent.GC
	}{
		{nil, "", kubelet},
		{
			[]string{"--minimum-container-ttl-duration=1m", "--maximum-dead-containers=20", "--maximum-dead-containers-per-container=2", "--pod-log-budget=200Mi", "--pinned-images=a:1, b/*"},
			"imageGCHighThresholdPercent: 90\nimageGCLowThresholdPercent: 50\nimageMinimumGCAge: 1m\nimageMaximumGCAge: 24h\ncontainerLogMaxSize: 1Mi\ncontainerLogMaxFiles: 3\ncontainerLogMaxWorkers: 2\ncontainerLogMonitorInterval: 5s",
			agent.GC{
				Images:       &imagegc.Policy{High: 90, Low: 50, MinAge: time.Minute, MaxAge: 24 * time.Hour},
				PinnedImages: []string{"a:1", "b/*"},
				Containers:   &containergc.Policy{MinAge: time.Minute, MaxPerContainer: 2, MaxContainers: 20},
				Logs:         agent.LogRotation{MaxSize: 1 << 20, MaxFiles: 3, PodBudget: 200 << 20, Workers: 2, Longest: 5 * time.Second},
			},
		},
	} {
		f, err := parseRunFlags(stdio{}, tc.flags)
		if err != nil {
			t.Fatal(err)
		}
		c, _, _, err := load(t, configHead+tc.content)
		if err != nil {
			t.Fatal(err)
		}
		if got := gcOf(&f.gc, c); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.content, got, tc.want)
		}
	}
	c, _, _, err := load(t, configHead+"containerLogMaxSize: '-1'")
	if err != nil || !gcOf(&gcFlags{}, c).Logs.Off {
		t.Errorf("logs are rotated; %v", err)
	}
}

func TestWriteImages(t *testing.T) {
	now := time.Unix(1700000000, 0)
	images := &local.Images{
		High: 85, Low: 80, Wanted: 3 << 20, Summary: "2 images", Disk: local.ImageDisk{Capacity: 100, Available: 14},
		Images: []local.Image{
			{Name: "a:1", Size: 5 << 20, Verdict: "removable", Goes: true, FirstSeen: now.Add(-time.Hour)},
			{Name: "b:1", Size: 512, Verdict: "in use", Why: "ns/p/c", FirstSeen: now.Add(-48 * time.Hour), LastUsed: now.Add(-5 * time.Second)},
		},
	}
	var b bytes.Buffer
	if err := writeImages(&b, images, now); err != nil {
		t.Fatal(err)
	}
	const want = `IMAGE   SIZE     SEEN      USED     STATE
a:1     5.0MiB   60m ago   never    removable (goes now)
b:1     512B     2d ago    5s ago   in use: ns/p/c
2 images
3.0MiB are to be freed, so that the disk is used to 80%
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
	for _, tc := range []struct {
		images local.Images
		want   string
	}{
		{local.Images{High: 85, Low: 80, Disk: images.Disk}, "the disk is used to 86%; from 85% on images are removed until it is 80%\n"},
		{local.Images{Problem: "no disk"}, "no disk\n"},
	} {
		b.Reset()
		if err := writeImages(&b, &tc.images, now); err != nil || !strings.HasSuffix(b.String(), tc.want) {
			t.Errorf("printed %q, want %q at the end", b.String(), tc.want)
		}
	}
}
