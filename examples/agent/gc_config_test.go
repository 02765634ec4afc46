package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/nodeagent"
)

func TestGCFlags(t *testing.T) {
	for flag, want := range map[string]string{
		"--minimum-container-ttl-duration=-1s": "--minimum-container-ttl-duration=-1s: want a duration of 0 or more",
		"--minimum-container-ttl-duration=x":   `--minimum-container-ttl-duration="x": want a duration such as 30s, 5m or 1h30m`,
		"--maximum-dead-containers=x":          `--maximum-dead-containers="x": want a whole number`,
		"--pod-log-budget=100Ki":               `--pod-log-budget="100Ki": want a quantity of bytes such as 200Mi, at least 128Ki`,
		"--pod-log-budget=-1":                  `--pod-log-budget="-1": want`,
		"--pod-log-budget=1m":                  `--pod-log-budget="1m": want`,
	} {
		if _, err := parseRunFlags([]string{flag}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}

func TestGCOptions(t *testing.T) {
	for flags, want := range map[string]nodeagent.Settings{
		"": {},
		"--pod-log-budget=200Mi --pinned-images=a:1,,b/*": {PodLogBudget: 200 << 20, PinnedImages: []string{"a:1", "b/*"}},
	} {
		f, c, _, err := loadRun(t, configHead+"staticPodPath: /m\nfailCgroupV1: false\nfailSwapOn: false\n", strings.Fields(flags)...)
		if err != nil {
			t.Fatal(err)
		}
		got := nodeOptions(f, c).Settings
		if got.PodLogBudget != want.PodLogBudget || !slices.Equal(got.PinnedImages, want.PinnedImages) {
			t.Errorf("%s: %+v, want %+v", flags, got, want)
		}
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
a:1     5.0MiB   60m ago   never    removable (would be removed now)
b:1     512B     2d ago    5s ago   in use: ns/p/c
2 images
3.0MiB have to be freed, so that disk usage falls to 80%
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
	for _, tc := range []struct {
		images local.Images
		want   string
	}{
		{local.Images{High: 85, Low: 80, Disk: images.Disk}, "disk usage is 86%; at 85% or more, images are removed until it is 80%\n"},
		{local.Images{Problem: "no disk"}, "no disk\n"},
	} {
		b.Reset()
		if err := writeImages(&b, &tc.images, now); err != nil || !strings.HasSuffix(b.String(), tc.want) {
			t.Errorf("printed %q, want %q at the end", b.String(), tc.want)
		}
	}
}
