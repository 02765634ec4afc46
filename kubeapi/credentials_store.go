package kubeapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nodewright/nodewright/internal/durable"
	"github.com/nodewright/nodewright/internal/safefile"
)

// ErrNoCertificate means that a store has no certificate.
var ErrNoCertificate = errors.New("no certificate")

// kept is how many earlier pairs stay on disk beside the current one.
const kept = 2

// CertificateStore stores a certificate and its key in a directory, like the
// kubelet: each pair in a file <prefix>-<time>.pem, readable only by its owner, and
// <prefix>-current.pem as a link to the one in use.
type CertificateStore struct {
	// Dir is created if it does not exist. Prefix is kubelet-client or
	// kubelet-server for the kubelet's certificates.
	Dir, Prefix string
	// CertFile and KeyFile are used if there is no current link.
	CertFile, KeyFile string
}

func (s *CertificateStore) path(what string) string {
	return filepath.Join(s.Dir, s.Prefix+"-"+what+".pem")
}

// CurrentPath returns the path of the pair in use: certificate and key.
func (s *CertificateStore) CurrentPath() string { return s.path("current") }

// Current reads the pair in use: the pair of the current link or, without the link, CertFile and
// KeyFile or, without them, <prefix>.crt and <prefix>.key. If none of them exists, it returns
// ErrNoCertificate. It first completes an Update that a crash interrupted.
func (s *CertificateStore) Current() (*tls.Certificate, error) {
	if err := s.recover(); err != nil {
		return nil, err
	}
	type pair struct{ cert, key string }
	for _, p := range []pair{{s.CurrentPath(), s.CurrentPath()}, {s.CertFile, s.KeyFile}, {filepath.Join(s.Dir, s.Prefix+".crt"), filepath.Join(s.Dir, s.Prefix+".key")}} {
		if p.cert == "" || p.key == "" || missing(p.cert) || missing(p.key) {
			continue
		}
		return loadFiles(p.cert, p.key)
	}
	return nil, fmt.Errorf("credentials: %s: %w", s.CurrentPath(), ErrNoCertificate)
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// recover completes an update of the kubelet, which removes the current link before
// it creates the next one.
func (s *CertificateStore) recover() error {
	next := s.path("updated")
	if !isLink(next) || !missing(s.CurrentPath()) || isLink(s.CurrentPath()) {
		return nil
	}
	if err := os.Rename(next, s.CurrentPath()); err != nil {
		return fmt.Errorf("credentials: finish an update: %w", err)
	}
	return syncDir(s.Dir)
}

func isLink(path string) bool {
	_, err := os.Readlink(path)
	return err == nil
}

func loadFiles(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := readFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	key, err := readFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	pair, err := parse(cert, key)
	if err != nil {
		return nil, fmt.Errorf("credentials: %s: %w", certFile, err)
	}
	return pair, nil
}

// Update stores a pair and puts it into use. The certificates are in PEM, the leaf
// first. When it returns nil, the pair survives a crash. The current link points to
// a complete pair at every moment: it is replaced atomically, after the new pair is
// on disk. Older pairs are removed afterwards.
func (s *CertificateStore) Update(certPEM, keyPEM []byte) (*tls.Certificate, error) {
	pair, err := s.update(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("credentials: store: %w", err)
	}
	s.prune()
	return pair, nil
}

func (s *CertificateStore) update(certPEM, keyPEM []byte) (*tls.Certificate, error) {
	if _, err := parse(certPEM, keyPEM); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, err
	}
	next := s.path("updated")
	for _, link := range []string{next, s.CurrentPath()} {
		info, err := os.Lstat(link)
		if err == nil && info.Mode()&fs.ModeSymlink == 0 {
			return nil, fmt.Errorf("%s: is a file; want a link", link)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	file, err := s.write(append(append(slices.Clip(certPEM), '\n'), keyPEM...))
	if err != nil {
		return nil, err
	}
	pair, err := loadFiles(file, file)
	if err != nil {
		return nil, errors.Join(err, os.Remove(file))
	}
	target, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := os.Symlink(target, next); err != nil {
		return nil, err
	}
	if err := os.Rename(next, s.CurrentPath()); err != nil {
		return nil, err
	}
	return pair, syncDir(s.Dir)
}

// write writes a pair to a new file. Two updates may happen within one second, so the
// name may be taken; then write chooses another.
func (s *CertificateStore) write(data []byte) (path string, err error) {
	stamp := time.Now().UTC().Format("2006-01-02-15-04-05")
	for n := 0; ; n++ {
		path = s.path(stamp)
		if n > 0 {
			path = s.path(fmt.Sprintf("%s-%03d", stamp, n))
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:forbidigo // makes a new file
		if errors.Is(err, fs.ErrExist) && n < 999 {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(data)
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return "", errors.Join(err, os.Remove(path))
		}
		return path, syncDir(s.Dir)
	}
}

// prune removes earlier pairs, except the newest ones and the one in use. Failures
// are ignored.
func (s *CertificateStore) prune() {
	used, err := filepath.EvalSymlinks(s.CurrentPath())
	if err != nil {
		return
	}
	entries, err := safefile.Entries(s.Dir, maxEntries)
	if err != nil {
		return
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var old []string
	for _, e := range entries { // by name, and so by time
		name, ok := strings.CutPrefix(e.Name(), s.Prefix+"-")
		if !ok || !e.Type().IsRegular() || !strings.HasSuffix(name, ".pem") || len(name) < 4 || name[0] < '0' || name[0] > '9' || e.Name() == filepath.Base(used) {
			continue
		}
		old = append(old, e.Name())
	}
	for len(old) > kept {
		_ = os.Remove(filepath.Join(s.Dir, old[0]))
		old = old[1:]
	}
}

func syncDir(dir string) error { return durable.OS{}.SyncDir(dir) }
