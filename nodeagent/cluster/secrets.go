package cluster

import (
	"go.uber.org/zap"

	"github.com/nodewright/nodewright/kubeapi/seal"
	"github.com/nodewright/nodewright/nodeagent"
)

// machineKey is the file below the root directory with the key that is made at the
// first start.
const machineKey = "secret.key"

// sealer returns the encryption of stored Secrets and tokens. If its key cannot be used, it logs
// an error and returns nil; Secrets and tokens are then not stored.
func sealer(b *nodeagent.Builder) *seal.Sealer {
	log := b.Log.Named("seal")
	s, err := openKey(b, func(setAside string, err error) {
		log.Warn("replaced damaged key; stored Secrets and tokens are lost", zap.String("file", setAside), zap.Error(err))
	})
	if err != nil {
		log.Error("failed to open key; Secrets and tokens are not stored", zap.Error(err))
		return nil
	}
	return s
}

func openKey(b *nodeagent.Builder, lost func(setAside string, err error)) (*seal.Sealer, error) {
	switch s := &b.Settings; {
	case s.SecretsInClear:
		return seal.Clear(), nil
	case s.SecretKeyFile != "":
		return seal.Open(s.SecretKeyFile)
	default:
		return seal.Machine(b.Path(machineKey), lost)
	}
}
