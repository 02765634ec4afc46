package images

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodewright/nodewright/internal/safefile"
)

// The files are those of the kubelet (KEP-2535), so that a node may change from
// one to the other: its versions with records write v1beta1, or v1alpha1 with
// the same fields, and read both.
const (
	recordVersion    = "kubelet.config.k8s.io/v1beta1"
	recordVersionOld = "kubelet.config.k8s.io/v1alpha1"
	intentKind       = "ImagePullIntent"
	recordKind       = "ImagePulledRecord"

	// Directories below Config.Records.
	intentDir = "pulling"
	recordDir = "pulled"

	recordPrefix = "sha256-"
)

// pullIntent says that a pull of an image was begun, and has not ended.
type pullIntent struct {
	metav1.TypeMeta `json:",inline"`
	// Image is the name that was asked for.
	Image string `json:"image"`
}

// pulledRecord describes with which credentials an image came to be here. One that
// is in the index is never changed.
type pulledRecord struct {
	metav1.TypeMeta `json:",inline"`
	LastUpdatedTime metav1.Time `json:"lastUpdatedTime"` // whole seconds in the file
	// ImageRef is the runtime's reference of the image.
	ImageRef string `json:"imageRef"`
	// CredentialMapping is by the repository that the image was asked of:
	// its name without tag and digest.
	CredentialMapping map[string]pullCredentials `json:"credentialMapping,omitempty"`
}

// pullCredentials are those that a registry gave an image for.
type pullCredentials struct {
	KubernetesSecrets         []pullSecret     `json:"kubernetesSecrets,omitempty"`
	KubernetesServiceAccounts []ServiceAccount `json:"kubernetesServiceAccounts,omitempty"`
	// NodePodsAccessible: with the node's own credentials, or with none.
	NodePodsAccessible bool `json:"nodePodsAccessible,omitempty"`
}

// pullSecret is one credential of a secret. The hash stands for its content:
// see credential.hash.
type pullSecret struct {
	UID            string `json:"uid"`
	Namespace      string `json:"namespace"`
	Name           string `json:"name"`
	CredentialHash string `json:"credentialHash"`
}

// ServiceAccount is the identity of a service account.
type ServiceAccount struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// recordName is the name of the file of an image. The hash makes a name of any
// image reference, whose slashes and colons a file's name could not hold. It is
// the kubelet's.
func recordName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return recordPrefix + hex.EncodeToString(sum[:])
}

// decodeIntent reads a file of intentDir. Fields that it does not know are
// ignored, as those of a newer kubelet are.
func decodeIntent(name string, b []byte) (*pullIntent, error) {
	i := &pullIntent{}
	if err := json.Unmarshal(b, i); err != nil {
		return nil, err
	}
	return i, checkFile(name, i.TypeMeta, intentKind, i.Image)
}

// decodeRecord reads a file of recordDir.
func decodeRecord(name string, b []byte) (*pulledRecord, error) {
	r := &pulledRecord{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	return r, checkFile(name, r.TypeMeta, recordKind, r.ImageRef)
}

// checkFile returns what is wrong with a file of that name. The name is checked
// too: a record copied under another image's name would open that image.
func checkFile(name string, t metav1.TypeMeta, kind, key string) error {
	switch {
	case t.Kind != kind || t.APIVersion != recordVersion && t.APIVersion != recordVersionOld:
		return fmt.Errorf("%q of %q: want %s of %s", t.Kind, t.APIVersion, kind, recordVersion)
	case key == "" || name != recordName(key):
		return fmt.Errorf("record is of image %q, whose file has another name", key)
	}
	return nil
}

// writeRecord keeps v in a file. When it returns nil, the file outlasts a
// crash; otherwise the old one is still there, or the new one already.
//
// Package checkpoint does the same, but puts a header before the value, which
// the kubelet could not read. It needs records.disk: the name of the temporary
// file is not unique. The order matters: the content is synced before the
// rename, which would otherwise put an empty file in its place after a crash,
// and the directory after it.
func writeRecord(dir, name string, v any) (err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	// Only the agent may read them: the records say which pod may use which image.
	if err := safefile.MakeDirs(dir, 0o700); err != nil {
		return err
	}
	held, err := safefile.OpenDir(dir, ".")
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }()
	temp := "." + name + ".tmp"
	defer func() {
		if err != nil {
			_ = held.Remove(temp)
		}
	}()
	// A file that a crash left; Create insists on a new one.
	if err := held.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := held.Create(temp, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := held.Rename(temp, name); err != nil {
		return err
	}
	return safefile.SyncDir(dir)
}

// removeRecord drops a file. After a crash it may be there again. It is not
// synced: an intent that comes back is settled once more, and a record that
// does is pruned again.
func removeRecord(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readRecords hands over each file of a directory; broken is why it cannot be
// read. What a crash left half-written is cleared away. Files with other names
// are left alone. A directory that is not there is empty.
func readRecords(dir string, each func(name string, b []byte, broken error)) error {
	held, err := safefile.OpenDir(dir, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }()
	entries, err := held.Entries(maxRecords)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasPrefix(name, "."+recordPrefix) && strings.HasSuffix(name, ".tmp"):
			_ = held.Remove(name) // it would be written over anyway
		case strings.HasPrefix(name, recordPrefix):
			b, err := safefile.ReadIn(dir, name, maxRecord)
			each(name, b, err)
		}
	}
	return nil
}

// Bounds of what is read: a node has some hundred images, and a record some
// hundred bytes for each secret that an image was pulled with.
const (
	maxRecords = 100_000
	maxRecord  = 16 << 20 // bytes
)
