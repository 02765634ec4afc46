package disk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/volumemgr/mount"
)

// programs stands in for blkid, fsck and mkfs, and records the calls.
type programs struct {
	answers map[string]struct {
		out  string
		exit int
	}
	ran []string
}

func (p *programs) run(_ context.Context, program string, args ...string) (string, int, error) {
	p.ran = append(p.ran, program+" "+strings.Join(args, " "))
	a, ok := p.answers[program]
	if !ok {
		return "", 0, fmt.Errorf("%s: not expected", program)
	}
	return a.out, a.exit, nil
}

func TestPrepare(t *testing.T) {
	type answers = map[string]struct {
		out  string
		exit int
	}
	for _, tc := range []struct {
		name    string
		fsType  string
		options []string
		answers answers
		ran     string // programs but blkid
		fails   error  // errAny: any
	}{
		{"empty", "ext4", nil, answers{"blkid": {"", 2}, "mkfs.ext4": {}}, "mkfs.ext4 -F -m0 /dev/x", nil},
		{"empty, xfs", "xfs", nil, answers{"blkid": {"", 2}, "mkfs.xfs": {}}, "mkfs.xfs -f /dev/x", nil},
		{"empty, another", "btrfs", nil, answers{"blkid": {"", 2}, "mkfs.btrfs": {}}, "mkfs.btrfs /dev/x", nil},
		{"empty and read-only", "ext4", []string{"ro"}, answers{"blkid": {"", 2}}, "", errAny},
		{"empty, and mkfs fails", "ext4", nil, answers{"blkid": {"", 2}, "mkfs.ext4": {"no space", 1}}, "mkfs.ext4 -F -m0 /dev/x", errAny},
		{"a type that is a path", "../ext4", nil, answers{"blkid": {"", 2}}, "", errAny},
		{"as wanted", "ext4", nil, answers{"blkid": {"DEVNAME=/dev/x\nTYPE=ext4\n", 0}, "fsck": {}}, "fsck -a /dev/x", nil},
		{"as wanted, mended", "ext4", nil, answers{"blkid": {"TYPE=ext4\n", 0}, "fsck": {"fixed", 1}}, "fsck -a /dev/x", nil},
		{"as wanted, another answer", "ext4", nil, answers{"blkid": {"TYPE=ext4\n", 0}, "fsck": {"usage", 8}}, "fsck -a /dev/x", nil},
		{"as wanted, not to be mended", "ext4", nil, answers{"blkid": {"TYPE=ext4\n", 0}, "fsck": {"bad", 4}}, "fsck -a /dev/x", errAny},
		{"as wanted, read-only", "ext4", []string{"ro"}, answers{"blkid": {"TYPE=ext4\n", 0}}, "", nil},
		{"another", "ext4", nil, answers{"blkid": {"TYPE=xfs\n", 0}}, "", ErrMismatch},
		{"partitions", "ext4", nil, answers{"blkid": {"PTTYPE=gpt\n", 0}}, "", ErrMismatch},
		{"nobody can tell", "ext4", nil, answers{"blkid": {"ambivalent", 8}}, "", errAny},
		{"an answer without a type", "ext4", nil, answers{"blkid": {"DEVNAME=/dev/x\n", 0}}, "", errAny},
		{"no blkid", "ext4", nil, nil, "", errAny},
	} {
		p := &programs{answers: tc.answers}
		err := Prepare(t.Context(), p.run, mount.FileSystem{Type: tc.fsType, Source: "/dev/x", Options: tc.options})
		switch {
		case (err == nil) != (tc.fails == nil), err != nil && tc.fails != errAny && !errors.Is(err, tc.fails):
			t.Errorf("%s: %v, want %v", tc.name, err, tc.fails)
		}
		if got := strings.Join(p.ran[1:], "; "); got != tc.ran {
			t.Errorf("%s: ran %q, want %q", tc.name, got, tc.ran)
		}
	}
}

var errAny = errors.New("any error")

func TestProgramThatTalksMuch(t *testing.T) {
	out, exit, err := Program(t.Context(), "sh", "-c", "head -c 10000000 /dev/zero | tr '\\0' x; exit 3")
	if err != nil || exit != 3 || len(out) != maxKept {
		t.Errorf("%d bytes, exit %d, %v; want %d", len(out), exit, err, maxKept)
	}
}

// blkid reports what it found on a disk with untrusted content.
func FuzzFound(f *testing.F) {
	f.Add("DEVNAME=/dev/sdb\nTYPE=ext4\n")
	f.Add("PTTYPE=gpt")
	f.Add("TYPE=\nTYPE")
	f.Fuzz(func(t *testing.T, out string) {
		fsType, table := found(out)
		if strings.Contains(fsType+table, "\n") || fsType != "" && !strings.Contains(out, "TYPE="+fsType) || table != "" && !strings.Contains(out, "PTTYPE="+table) {
			t.Fatalf("%q, %q of %q", fsType, table, out)
		}
	})
}
