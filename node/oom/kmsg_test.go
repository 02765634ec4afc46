package oom

import (
	"testing"
	"time"
)

func TestParseRecord(t *testing.T) {
	for _, tt := range []struct {
		raw  string
		want kmsgRecord
	}{
		{"6,214793,45971587064,-;eth0: link up\n", kmsgRecord{6, 214793, 45971587064 * time.Microsecond, "eth0: link up"}},
		{"4,1,0,c,caller=T77;two\n SUBSYSTEM=net\n DEVICE=n5\n", kmsgRecord{4, 1, 0, "two"}},
		{"30,2,5,-;systemd[1]: a;b\n", kmsgRecord{30, 2, 5 * time.Microsecond, "systemd[1]: a;b"}},
		{`3,2,5,-;na\x6de\x0aline \x zz \xzz \x4`, kmsgRecord{3, 2, 5 * time.Microsecond, "name\nline \\x zz \\xzz \\x4"}},
		{"3,2,5;", kmsgRecord{3, 2, 5 * time.Microsecond, ""}},
	} {
		got, err := parseRecord([]byte(tt.raw))
		if err != nil || got != tt.want {
			t.Errorf("%q = %+v, %v; want %+v", tt.raw, got, err, tt.want)
		}
		if got.FromKernel() != (tt.want.Priority < 8) {
			t.Errorf("%q: from the kernel: %v", tt.raw, got.FromKernel())
		}
	}
	for _, raw := range []string{"", "no prefix", "6,1;x", "x,1,1,-;x", "6,-1,1,-;x", "6,1,x,-;x", "-6,1,1,-;x", "6,1,18446744073709551615,-;x"} {
		if r, err := parseRecord([]byte(raw)); err == nil {
			t.Errorf("%q = %+v; want an error", raw, r)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte("6,214793,45971587064,-;eth0: link up\n SUBSYSTEM=net\n"))
	f.Add([]byte(`3,2,5,-;\x6d\x`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := parseRecord(raw)
		if err == nil && (r.Since < 0 || r.Priority < 0 || len(r.Message) > len(raw)) {
			t.Errorf("%q = %+v", raw, r)
		}
	})
}
