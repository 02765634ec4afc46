package podtext

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Volume formats a volume's type and source.
func Volume(v *v1.Volume) string {
	switch s := v.VolumeSource; {
	case s.EmptyDir != nil:
		return emptyDir(s.EmptyDir)
	case s.HostPath != nil:
		kind := ""
		if s.HostPath.Type != nil && *s.HostPath.Type != "" {
			kind = ", " + string(*s.HostPath.Type)
		}
		return "hostPath " + s.HostPath.Path + kind
	case s.ConfigMap != nil:
		return "configMap " + s.ConfigMap.Name + optionally(s.ConfigMap.Optional)
	case s.Secret != nil:
		return "secret " + s.Secret.SecretName + optionally(s.Secret.Optional)
	case s.DownwardAPI != nil:
		return "downwardAPI: " + joined(s.DownwardAPI.Items, func(f v1.DownwardAPIVolumeFile) string { return f.Path })
	case s.Projected != nil:
		return "projected: " + joined(s.Projected.Sources, projection)
	case s.PersistentVolumeClaim != nil:
		return "claim " + s.PersistentVolumeClaim.ClaimName + readOnly(s.PersistentVolumeClaim.ReadOnly)
	case s.Ephemeral != nil:
		return "ephemeral claim, created with the pod"
	case s.NFS != nil:
		return "nfs " + s.NFS.Server + ":" + s.NFS.Path + readOnly(s.NFS.ReadOnly)
	case s.CSI != nil:
		return "csi " + s.CSI.Driver + readOnly(s.CSI.ReadOnly != nil && *s.CSI.ReadOnly)
	case s.Image != nil:
		return "image " + s.Image.Reference
	case s.ISCSI != nil:
		return fmt.Sprintf("iscsi %s %s lun %d%s", s.ISCSI.TargetPortal, s.ISCSI.IQN, s.ISCSI.Lun, readOnly(s.ISCSI.ReadOnly))
	case s.FC != nil:
		return "fc" + readOnly(s.FC.ReadOnly)
	}
	return "type that this node does not mount"
}

func emptyDir(e *v1.EmptyDirVolumeSource) string {
	s := "emptyDir"
	if e.Medium != "" {
		s += ", medium " + string(e.Medium)
	}
	if e.SizeLimit != nil {
		s += ", limit " + e.SizeLimit.String()
	}
	return s
}

func projection(p v1.VolumeProjection) string {
	switch {
	case p.Secret != nil:
		return "secret " + p.Secret.Name + optionally(p.Secret.Optional)
	case p.ConfigMap != nil:
		return "configMap " + p.ConfigMap.Name + optionally(p.ConfigMap.Optional)
	case p.DownwardAPI != nil:
		return "downwardAPI"
	case p.ServiceAccountToken != nil:
		return "token for " + orWord(p.ServiceAccountToken.Audience, "the API server")
	case p.ClusterTrustBundle != nil:
		return "trust bundle at " + p.ClusterTrustBundle.Path
	case p.PodCertificate != nil:
		return "certificate of " + p.PodCertificate.SignerName
	}
	return none
}

func readOnly(is bool) string {
	if is {
		return " (read-only)"
	}
	return ""
}
