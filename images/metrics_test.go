package images

import "testing"

func TestSizeLabel(t *testing.T) {
	const mb, gb = 1 << 20, 1 << 30
	for _, tc := range []struct {
		bytes uint64
		want  string
	}{
		{0, "N/A"},
		{1, "0-10MB"},
		{10 * mb, "0-10MB"},
		{10*mb + 1, "10MB-100MB"},
		{100*mb + 1, "100MB-500MB"},
		{500 * mb, "100MB-500MB"},
		{500*mb + 1, "500MB-1GB"},
		{1*gb + 1, "1GB-5GB"},
		{5*gb + 1, "5GB-10GB"},
		{10*gb + 1, "10GB-20GB"},
		{20*gb + 1, "20GB-30GB"},
		{30*gb + 1, "30GB-40GB"},
		{40*gb + 1, "40GB-60GB"},
		{60*gb + 1, "60GB-100GB"},
		{100 * gb, "60GB-100GB"},
		{100*gb + 1, "GT100GB"},
		{1<<64 - 1, "GT100GB"},
	} {
		if got := sizeLabel(tc.bytes); got != tc.want {
			t.Errorf("sizeLabel(%d) = %s, want %s", tc.bytes, got, tc.want)
		}
	}
}
