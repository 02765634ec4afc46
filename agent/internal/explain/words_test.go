package explain

import "testing"

func TestShare(t *testing.T) {
	for _, tc := range []struct {
		part, all int64
		want      string
	}{
		{0, 500, "0 of 500 B"}, {1, 1023, "1 of 1023 B"}, {512, 1024, "0.5 of 1.0 KiB"}, {0, 20 << 10, "0 of 20 KiB"},
		{12<<20 + 1, 40 << 20, "12 of 40 MiB"}, {1 << 20, 3 << 30, "0.0 of 3.0 GiB"}, {1 << 40, 2 << 40, "1024 of 2048 GiB"},
	} {
		if got := share(tc.part, tc.all); got != tc.want {
			t.Errorf("share(%d, %d) = %q, want %q", tc.part, tc.all, got, tc.want)
		}
	}
}
