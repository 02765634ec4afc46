package facts

import (
	"slices"
	"testing"
)

func TestParseKernel(t *testing.T) {
	for release, want := range map[string]Kernel{
		"6.12.9-amd64": {6, 12}, "5.6.0": {5, 6}, "5.10": {5, 10}, "6.1-rc3": {6, 1}, "4.18.0-553.el8_10.x86_64": {4, 18}, "6.12+": {6, 12},
	} {
		if got, err := ParseKernel(release); err != nil || got != want {
			t.Errorf("ParseKernel(%s) = %v, %v; want %v", release, got, err, want)
		}
	}
	for _, release := range []string{"", "6", "six.one", "6.", ".1", "-1.2", "6.99999999", "99999999999999999999.1"} {
		if got, err := ParseKernel(release); err == nil {
			t.Errorf("ParseKernel(%q) = %v", release, got)
		}
	}
}

func TestLacks(t *testing.T) {
	for _, tt := range []struct {
		kernel Kernel
		v2     bool
		want   []Kernel // since when there would be each
	}{
		{Kernel{6, 15}, true, nil},
		{Kernel{7, 0}, true, nil},
		{Kernel{6, 12}, true, []Kernel{{6, 15}}},
		{Kernel{6, 8}, true, []Kernel{{6, 15}}},
		{Kernel{6, 1}, true, []Kernel{{6, 8}, {6, 15}}},
		{Kernel{5, 13}, true, []Kernel{{5, 14}, {5, 19}, {6, 8}, {6, 15}}},
		{Kernel{5, 13}, false, []Kernel{{5, 19}, {6, 8}, {6, 15}}},
		{Kernel{5, 6}, true, []Kernel{{5, 10}, {5, 12}, {5, 14}, {5, 19}, {6, 8}, {6, 15}}},
	} {
		var got []Kernel
		for _, l := range tt.kernel.Lacks(tt.v2) {
			got = append(got, l.Since)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%v, v2 %v lacks what came with %v; want %v", tt.kernel, tt.v2, got, tt.want)
		}
	}
}

func FuzzParseKernel(f *testing.F) {
	f.Add("6.12.9-amd64")
	f.Fuzz(func(t *testing.T, s string) {
		if k, err := ParseKernel(s); err == nil && (k.Major < 0 || k.Minor < 0 || k.Major > 65535 || k.Minor > 65535) {
			t.Errorf("ParseKernel(%q) = %v", s, k)
		}
	})
}
