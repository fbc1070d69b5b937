//! Pictures in pixels.

use resvg::{tiny_skia, usvg};
use std::error::Error;

/// Renders a picture in SVG as PNG, twice its size in pixels. All text is in Noto Sans.
///
/// # Errors
///
/// An error if `svg` is no SVG, or if the picture would be too large.
pub(crate) fn png(svg: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    const PIXELS: f32 = 2.0;
    let mut options = usvg::Options { font_family: FONT.into(), ..usvg::Options::default() };
    for font in [notosans::REGULAR_TTF, notosans::BOLD_TTF] {
        options.fontdb_mut().load_font_data(font.to_vec());
    }
    options.fontdb_mut().set_sans_serif_family(FONT);
    let tree = usvg::Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size().scale_by(PIXELS);
    let canvas = size.and_then(|size| tiny_skia::Pixmap::new(size.width(), size.height()));
    let mut canvas = canvas.ok_or("the picture would be too large")?;
    let scale = tiny_skia::Transform::from_scale(PIXELS, PIXELS);
    resvg::render(&tree, scale, &mut canvas.as_mut());
    Ok(canvas.encode_png()?)
}

const FONT: &str = "Noto Sans";
