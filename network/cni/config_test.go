package cni

import (
	"strings"
	"testing"
	"time"
)

func TestConfig(t *testing.T) {
	c, err := Config{}.withDefaults()
	if err != nil || c.ConfDir != "/etc/cni/net.d" || len(c.BinDirs) != 1 || c.BinDirs[0] != "/opt/cni/bin" || c.AddTimeout != 2*time.Minute ||
		c.DelTimeout != time.Minute || c.CheckTimeout != 30*time.Second || c.VersionTimeout != 10*time.Second || c.GCTimeout != 2*time.Minute {
		t.Errorf("%+v, %v", c, err)
	}
	for _, bad := range []struct {
		cfg  Config
		want []string
	}{
		{Config{ConfDir: "net.d", CacheDir: "cache", BinDirs: []string{"/a", "b"}}, []string{`ConfDir is "net.d"`, `CacheDir is "cache"`, `BinDirs[1] is "b"`}},
		{Config{BinDirs: []string{"/a:/b"}}, []string{"BinDirs[0]", "CNI_PATH"}},
		{Config{Prefer: 3, AddTimeout: -1, GCTimeout: -1}, []string{"Prefer is 3", "AddTimeout is -1ns", "GCTimeout"}},
	} {
		_, err := New(bad.cfg)
		for _, want := range bad.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v; want %q in it", err, want)
			}
		}
	}
}
