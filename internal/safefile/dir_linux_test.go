package safefile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A program holds a lease on a file: to open it for writing waits.
func TestWriteWaitsForNobody(t *testing.T) {
	dir := tree(t)
	f, err := os.Open(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	const fSetLease, readLease = 1024, 0 // fcntl(2)
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), fSetLease, readLease); errno != 0 {
		t.Skip("no leases here:", errno)
	}
	if err := held(t, dir, ".").Write("file", []byte(strings.Repeat("x", 9)), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(filepath.Join(dir, "file")); string(b) != "xxxxxxxxx" {
		t.Errorf("%q", b)
	}
}

// Where openat2 is missing, a directory is held step by step, with the same outcome.
func TestDirectoriesWithoutOpenat2(t *testing.T) {
	withoutOpenat2(t, syscall.ENOSYS)
	for name, test := range map[string]func(*testing.T){
		"links": TestNoLinkLeadsToAHeldDirectory, "held": TestAHeldDirectoryStaysTheSame, "entries": TestEntries,
		"info": TestEntriesLookInTheHeldDirectory, "write": TestWrite,
	} {
		t.Run(name, test)
	}
}
