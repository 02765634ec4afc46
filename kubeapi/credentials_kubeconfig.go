package kubeapi

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// CredentialFiles are the files with the credentials for the API server.
type CredentialFiles struct {
	Kubeconfig string // of the node
	Bootstrap  string // used while Kubeconfig is unusable; "" is none
	// Current is the path of the certificate pair that a kubeconfig created from Bootstrap refers
	// to: Store.CurrentPath.
	Current string
}

// LoadCredentials reads the credentials for the API server. The result user is for all calls. If
// a first certificate has to be requested, the result bootstrap is not nil, and is for that
// request. In this case LoadCredentials writes a kubeconfig that points to the future
// certificate.
//
// Kubeconfig is used if it is readable and every certificate in it is valid at the time now. If
// there is no Bootstrap, it is used in any case.
func LoadCredentials(f CredentialFiles, now time.Time) (user, bootstrap *rest.Config, err error) {
	if f.Bootstrap == "" {
		user, err = read(f.Kubeconfig)
		return user, nil, err
	}
	if _, err := os.Stat(f.Kubeconfig); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("credentials: kubeconfig: %w", err)
	}
	if user, err = read(f.Kubeconfig); err == nil && usable(user, now) == nil {
		return user, nil, nil
	}
	if bootstrap, err = read(f.Bootstrap); err != nil {
		return nil, nil, err
	}
	user = rest.AnonymousClientConfig(bootstrap)
	user.CertFile, user.KeyFile = f.Current, f.Current
	if err := write(f.Kubeconfig, user); err != nil {
		return nil, nil, fmt.Errorf("credentials: kubeconfig: %w", err)
	}
	return user, bootstrap, nil
}

func read(path string) (*rest.Config, error) {
	if path == "" {
		return nil, errors.New("credentials: kubeconfig: no path is given")
	}
	cfg, err := restConfig(path)
	if err != nil {
		return nil, fmt.Errorf("credentials: kubeconfig %s: %w", path, err)
	}
	return cfg, nil
}

// usable returns an error if a certificate of cfg is not valid at the time now. A config
// without a certificate, such as one with a token, is usable.
func usable(cfg *rest.Config, now time.Time) error {
	if _, err := rest.TLSConfigFor(cfg); err != nil {
		return err
	}
	text := cfg.CertData
	if len(text) == 0 && cfg.CertFile != "" {
		var err error
		if text, err = readFile(cfg.CertFile); err != nil {
			return err
		}
	}
	if len(text) == 0 {
		return nil
	}
	all, err := parseCertificates(text)
	if err != nil {
		return err
	}
	return expired(all, now)
}

func expired(all []*x509.Certificate, now time.Time) error {
	for _, c := range all {
		if now.After(c.NotAfter) {
			return fmt.Errorf("the certificate of %q has expired at %v", c.Subject.CommonName, c.NotAfter)
		}
	}
	return nil
}

// write replaces a kubeconfig in one step.
func write(path string, cfg *rest.Config) error {
	const name = "default"
	out := clientcmdapi.NewConfig()
	out.Clusters[name] = &clientcmdapi.Cluster{
		Server: cfg.Host, InsecureSkipTLSVerify: cfg.Insecure, TLSServerName: cfg.ServerName,
		CertificateAuthority: cfg.CAFile, CertificateAuthorityData: cfg.CAData,
	}
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificate: cfg.CertFile, ClientKey: cfg.KeyFile}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: "default"}
	out.CurrentContext = name
	raw, err := clientcmd.Write(*out)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".kubeconfig-*") // for its owner alone
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}
