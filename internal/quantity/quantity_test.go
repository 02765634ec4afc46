package quantity

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestParse(t *testing.T) {
	for _, s := range []string{"1", "1.5Gi", "1E", "1e3", "1e+3", "12Ei", "1E-99", "1e99", "-1", "18446744073709551615"} {
		got, err := Parse(s)
		if want := resource.MustParse(s); err != nil || got.Cmp(want) != 0 {
			t.Errorf("%s: %v, %v; want %v", s, got.String(), err, want.String())
		}
	}
	for _, s := range []string{"1e100", "1e-100", "1e-2000000000", "1E2000000000", "1e99999999999999999999", "0e-2000000000", strings.Repeat("9", MaxLength+1)} {
		if _, err := Parse(s); !errors.Is(err, ErrTooCostly) {
			t.Errorf("%.40s: %v, want ErrTooCostly", s, err)
		}
	}
	for _, s := range []string{"", "e", "1ex", "x", "1e"} {
		if _, err := Parse(s); err == nil || errors.Is(err, ErrTooCostly) {
			t.Errorf("%q: %v, want the parser's error", s, err)
		}
	}
}

// Whatever passes is parsed, and written, in a moment.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"1", "1e99", "1e-99", "1e-2000000000", "100m", "1.0000000000000000000000001Ei", "+1E9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		began := time.Now()
		q, err := Parse(s)
		if err == nil {
			_, _, _ = q.String(), q.Value(), q.MilliValue()
		}
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("%q takes %v", s, d)
		}
	})
}
