//! Windows (PowerShell's module VpnClient).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Credential, Profile};

pub(super) fn render(profile: &Profile<'_>) -> String {
    let (name, gateway) = (profile.name, profile.gateway);
    let root = STANDARD.encode(profile.root_der);
    let (import, method) = match &profile.credential {
        Credential::Certificate { .. } => (
            format!(
                "$password = Read-Host -AsSecureString 'Password of {name}.p12'\n\
                 Import-PfxCertificate -FilePath (Join-Path $PSScriptRoot '{name}.p12') \
                 -CertStoreLocation Cert:\\LocalMachine\\My -Password $password | Out-Null\n"
            ),
            "MachineCertificate",
        ),
        Credential::Password => (String::new(), "Eap"),
    };
    let routes = profile.networks.iter().map(|network| {
        format!("Add-VpnConnectionRoute -ConnectionName $name -DestinationPrefix '{network}'\n")
    });
    format!(
        "# Run as administrator: powershell -ExecutionPolicy Bypass -File {name}.ps1\n\
         #Requires -RunAsAdministrator\n\
         $ErrorActionPreference = 'Stop'\n\
         $name = '{gateway}'\n\
         $root = New-TemporaryFile\n\
         [IO.File]::WriteAllBytes($root, [Convert]::FromBase64String('{root}'))\n\
         Import-Certificate -FilePath $root -CertStoreLocation Cert:\\LocalMachine\\Root | Out-Null\n\
         Remove-Item $root\n\
         {import}\
         Add-VpnConnection -Name $name -ServerAddress '{gateway}' -TunnelType Ikev2 \
         -AuthenticationMethod {method} -EncryptionLevel Maximum -SplitTunneling\n\
         Set-VpnConnectionIPsecConfiguration -ConnectionName $name -EncryptionMethod AES256 \
         -IntegrityCheckMethod SHA256 -DHGroup ECP256 -CipherTransformConstants GCMAES256 \
         -AuthenticationTransformConstants GCMAES256 -PfsGroup ECP256 -Force\n\
         {}",
        routes.collect::<String>()
    )
}
