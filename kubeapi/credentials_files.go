package kubeapi

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodewright/nodewright/internal/manifestguard"
	"github.com/nodewright/nodewright/internal/safefile"
)

const (
	// maxFile limits the size of a certificate, key, bundle of roots or kubeconfig, in bytes. The
	// roots of all public authorities have 250 kB.
	maxFile = 2 << 20
	// maxEntries limits the entries of the store's directory that are read; it has
	// five.
	maxEntries = 1000
)

// readFile reads a file that a person or this agent named. It follows links: the file of the pair
// in use is a link.
func readFile(path string) ([]byte, error) { return safefile.ReadLinked(path, maxFile) }

// restConfig reads a kubeconfig. Paths in it are relative to its directory.
func restConfig(path string) (*rest.Config, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, err
	}
	if err := manifestguard.Aliases(text, maxFile); err != nil {
		return nil, err
	}
	raw, err := clientcmd.Load(text)
	if err != nil {
		return nil, err
	}
	for _, c := range raw.Clusters {
		c.LocationOfOrigin = path
	}
	for _, a := range raw.AuthInfos {
		a.LocationOfOrigin = path
	}
	if err := clientcmd.ResolveLocalPaths(raw); err != nil {
		return nil, err
	}
	if err := smallFiles(raw); err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*raw, &clientcmd.ConfigOverrides{}).ClientConfig()
}

// smallFiles refuses a kubeconfig that names a file on which client-go would block
// or read forever. A missing file is accepted: certificates are requested later.
func smallFiles(raw *api.Config) error {
	var errs []error
	use := raw.Contexts[raw.CurrentContext]
	if use == nil {
		return nil // client-go returns an error
	}
	if c := raw.Clusters[use.Cluster]; c != nil {
		errs = append(errs, small("certificate-authority", c.CertificateAuthority))
	}
	if a := raw.AuthInfos[use.AuthInfo]; a != nil {
		errs = append(errs, small("client-certificate", a.ClientCertificate), small("client-key", a.ClientKey), small("tokenFile", a.TokenFile))
	}
	return errors.Join(errs...)
}

func small(field, path string) error {
	if path == "" {
		return nil
	}
	f, err := safefile.OpenLinked(path)
	if err != nil {
		if errors.Is(err, safefile.ErrNotRegular) {
			return fmt.Errorf("%s: %w", field, err)
		}
		return nil // the reader of the file returns the error
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > maxFile {
		return fmt.Errorf("%s: %s: %d bytes: %w: want at most %d bytes", field, path, info.Size(), safefile.ErrTooLarge, maxFile)
	}
	return nil
}
