package seal_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodewright/nodewright/kubeapi/seal"
)

func keyFile(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := errors.Join(os.WriteFile(file, []byte(content), 0o600), os.Chmod(file, mode)); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestKeys(t *testing.T) {
	raw := strings.Repeat("k", 32)
	for _, tc := range []struct {
		name, content string
		mode          os.FileMode
		want          string // of the error
	}{
		{"raw", raw, 0o600, ""},
		{"hex", strings.Repeat("6b", 32) + "\n", 0o600, ""},
		{"hex, upper case", strings.Repeat("6B", 32), 0o600, ""},
		{"base64", base64.StdEncoding.EncodeToString([]byte(raw)) + "\r\n", 0o400, ""},
		{"readable for the group", raw, 0o640, "mode is 0640"},
		{"readable for all", raw, 0o604, "mode is 0604"},
		{"too short", raw[1:], 0o600, "31 bytes; want a key of 32"},
		{"too long", raw + "k", 0o600, "33 bytes"},
		{"empty", "", 0o600, "0 bytes"},
		{"hex, one too many", strings.Repeat("6b", 33), 0o600, "66 bytes"},
	} {
		s, err := seal.Open(keyFile(t, tc.content, tc.mode))
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		sealed, err := s.Seal("n", []byte("hidden"))
		if err != nil || !seal.Sealed(sealed) || bytes.Contains(sealed, []byte("hidden")) {
			t.Errorf("%s: sealed %q (%v)", tc.name, sealed, err)
		}
		same, err := seal.Open(keyFile(t, raw, 0o600))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := same.Unseal("n", sealed); string(got) != "hidden" || err != nil {
			t.Errorf("%s: unsealed %q (%v)", tc.name, got, err)
		}
	}
	if _, err := seal.Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestSealed(t *testing.T) {
	s, err := seal.Open(keyFile(t, strings.Repeat("k", 32), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	other, err := seal.Open(keyFile(t, strings.Repeat("l", 32), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	one, err := s.Seal("a", nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := s.Seal("a", nil)
	if err != nil || bytes.Equal(one, two) {
		t.Errorf("the same twice (%v)", err)
	}
	if got, err := s.Unseal("a", one); len(got) != 0 || err != nil {
		t.Errorf("unsealed %q (%v)", got, err)
	}
	if _, err := s.Unseal("b", one); !errors.Is(err, seal.ErrWrongKey) {
		t.Errorf("under another name: %v", err)
	}
	if _, err := other.Unseal("a", one); !errors.Is(err, seal.ErrWrongKey) {
		t.Errorf("with another key: %v", err)
	}
	for i := range one {
		bad := bytes.Clone(one)
		bad[i] ^= 1
		if _, err := s.Unseal("a", bad); seal.Sealed(bad) && !errors.Is(err, seal.ErrWrongKey) {
			t.Errorf("with byte %d changed: %v", i, err)
		}
		if _, err := s.Unseal("a", one[:i]); seal.Sealed(one[:i]) && !errors.Is(err, seal.ErrWrongKey) {
			t.Errorf("cut off after byte %d: %v", i, err)
		}
	}
	if seal.Sealed([]byte("{}")) || seal.Sealed(nil) {
		t.Error("what is not encrypted seems to be")
	}
}

func FuzzUnseal(f *testing.F) {
	key := filepath.Join(f.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		f.Fatal(err)
	}
	s, err := seal.Open(key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("nodewright sealed 1\n"))
	f.Add([]byte("nodewright sealed 1\n0123456789ab0123456789abcdef"))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := s.Unseal("n", b)
		if seal.Sealed(b) != (err != nil) || err == nil && !bytes.Equal(got, b) {
			t.Errorf("%q is %q (%v)", b, got, err)
		}
	})
}
